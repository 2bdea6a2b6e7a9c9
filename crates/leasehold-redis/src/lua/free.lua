-- The short way of a claim to a lock that is free, unless numbers may have been forgotten.
if string.find(call('INFO', 'replication'), 'master_replid:' .. string.sub(fence, -40), 1, true) then
  local token = math.max(string.sub(fence, 1, 16) + 1, token_above + 1, micros)
  local expires = lease and now + lease
  local frees = lease and expires + lock_delay or NEVER
  local text = pack(VERSION, limit, limit, frees, 0, 0, id, expires, lease, token, token, most, most, most, now)
    .. ARGV[2]
  if lease then
    call('SET', KEYS[2], text, 'PXAT', string.format('%d', frees))
  else
    call('SET', KEYS[2], text)
  end
  call('SETRANGE', KEYS[1], '0', string.format('%016d', token))
  return struct.pack(STANDS, 'granted', token, token, most, lease or -1, 0)
end
