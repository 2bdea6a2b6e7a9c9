-- beat: writes something and changes nothing. Since Redis 7.2, WAIT waits for the last write of its connection, and a
-- request that was carried out before writes nothing when it is repeated: this does, after it.
-- keys: the fence
-- arguments: none
-- result: nothing
local call = redis.call
-- A server that is out of memory lets a script write if its first write takes none.
call('PERSIST', KEYS[1])
local fence = call('GET', KEYS[1])
if fence then
  call('SETRANGE', KEYS[1], '0', string.sub(fence, 1, 16))
else
  call('SET', KEYS[1], '0')
  call('DEL', KEYS[1])
end
return {}
