-- The time by the server's clock, the only one there is here: `now` in milliseconds, `micros`, and the second as text.
local call = redis.call
local time = call('TIME')
local second, micros = time[1], time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
