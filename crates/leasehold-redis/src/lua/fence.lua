-- The fence: one record that all locks of a server share (in a cluster, those of a slot). KEYS[1] is its name:
--   <the last number given out, 16 digits> <since when nothing was forgotten, ms> <the second in which the following
--   was looked up> <replication id, 16 digits of it>
-- Numbers are hybrid: they rise as long as the clock does, whatever was forgotten. Where numbers may have been
-- forgotten (another replication id: failover, restart; no record: FLUSHALL) and the clock may be behind that of
-- the server that gave them out, they leap ahead once.
local LEAP = 60000000
local last, rest

local function write_fence()
  call('SET', KEYS[1], format('%016d', last) .. rest)
end

local function open_fence()
  local text = call('GET', KEYS[1])
  local id = string.match(call('INFO', 'replication'), 'master_replid:(' .. string.rep('%x', 16) .. ')')
  if text then
    last, rest = tonumber(sub(text, 1, 16)), sub(text, 17, -28) .. second .. ' ' .. id
  end
  if not text or id ~= sub(text, -16) then
    last, rest = math.max(last or 0, micros) + LEAP, format(' %d ', now) .. second .. ' ' .. id
    write_fence()
  end
end

local function number(above)
  if not last then
    open_fence()
  end
  last = math.max(last + 1, above + 1, micros)
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
