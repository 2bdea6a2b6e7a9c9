if last > written then
  written = last + spare
  call('SETRANGE', KEYS[1], '0', string.format('%016d', written))
end
