if last == nil then
  fence = fence or call('GET', KEYS[1])
  last = fence and tonumber(sub(fence, 1, 16))
end
