-- The fence: one record that all locks of a server share (in a cluster, those of a slot). KEYS[1] is its name:
--   <the last number given out, 16 digits> <since when nothing was forgotten, ms> <the second in which the following
--   was looked up> <replication id, 16 digits of it>
-- Numbers are hybrid: they rise as long as the clock does, whatever was forgotten. Where numbers may have been
-- forgotten (another replication id: failover, restart; no record: FLUSHALL), the fence leaps to the clock plus BOUND.
-- No number is further ahead of the clock, so the leap passes every number that was forgotten, however often that
-- happens. The leap also passes what the record says by STEP: the clock of the server that gave out those numbers may
-- have been ahead of this one. If both together would pass the bound, the fence waits until the clock catches up.
local STEP = 1000000
local last, rest
-- For how many microseconds the fence must wait before it can leap.
local early = 0

local function write_fence()
  call('SET', KEYS[1], format('%016d', last) .. rest)
end

local function open_fence()
  local text = call('GET', KEYS[1])
  local id = string.match(call('INFO', 'replication'), 'master_replid:(' .. string.rep('%x', 16) .. ')')
  last = text and tonumber(sub(text, 1, 16)) or 0
  if text and id == sub(text, -16) then
    rest = sub(text, 17, -28) .. second .. ' ' .. id
    return
  end
  rest = format(' %d ', now) .. second .. ' ' .. id
  early = math.max(last + STEP - BOUND - micros, 0)
  if early == 0 then
    last = micros + BOUND
    write_fence()
  end
end

-- For how many milliseconds no number above this one may be drawn.
local function wait_for(above)
  if not last then
    open_fence()
  end
  local lead = above > last and above + 1 - BOUND - micros or 0
  return math.ceil(math.max(early, lead) / 1000)
end

-- The next number. Only after wait_for has said that there is one.
local function number(above)
  if not last then
    open_fence()
  end
  last = math.max(last + 1, math.min(above + 1, micros + BOUND), micros)
  write_fence()
  return last
end

-- Since when nothing was forgotten.
local function born()
  if not last then
    open_fence()
  end
  return tonumber(string.match(rest, '^ (%d+)'))
end
