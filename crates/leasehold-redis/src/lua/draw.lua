if last > written then
  written = last + spare
  call('SETRANGE', KEYS[1], '0', format('%016d', written))
end
