-- The fence: one record that all locks of a server share (in a cluster, those of a slot). KEYS[1] is its name:
--   <replication id> <since when nothing was forgotten, ms> <the last number given out>
-- Numbers are hybrid: they rise as long as the clock does, whatever was forgotten. Where numbers may have been
-- forgotten (another replication id: failover, restart; no record: FLUSHALL) and the clock may be behind that of
-- the server that gave them out, they leap ahead once.
local LEAP = 60000000
local replid, born, last

local function write_fence()
  redis.call('SET', KEYS[1], string.format('%s %d %d', replid, born, last))
end

local function open_fence(text)
  local known
  if text then
    known, born, last = string.match(text, '^(%x+) (%d+) (%d+)$')
    born, last = tonumber(born), tonumber(last)
  end
  replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  if known ~= replid then
    born, last = now, math.max(last or 0, micros) + LEAP
    write_fence()
  end
end

local function next_number(above)
  return math.max(last + 1, above + 1, micros)
end

local function number(above)
  if not last then
    open_fence(redis.call('GET', KEYS[1]))
  end
  last = next_number(above)
  write_fence()
  return last
end
