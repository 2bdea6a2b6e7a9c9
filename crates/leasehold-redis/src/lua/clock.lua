-- The time by the server's clock, the only one there is here: `now` in milliseconds, `micros`, and the second as text.
local call = redis.call
local time = call('TIME')
local second, micros = time[1], time[1] * 1000000 + time[2]
if #second < 10 then
  -- A clock that was never set: it is found by its place.
  second = string.rep('0', 10 - #second) .. second
end
local now = math.floor(micros / 1000)
