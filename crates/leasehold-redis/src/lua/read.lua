if last == nil then
  fence = call('GET', KEYS[1])
  last = fence and tonumber(string.sub(fence, 1, 16))
end
