-- One lock's claims, as the rule asks for them: fetches and writes, decides nothing.
-- A lock with many claims is kept this much longer than its last claim, so that not every renewal moves its end.
local SPARE = 5000
-- And at most this much longer, when a claim that would have stayed for long goes early.
local EXCESS = 60000

local key, wide, head, only, text

local function fetch(from, to, ...)
  return redis.call('ZRANGEBYLEX', key, from, to, ...)
end

local function turn(row)
  return string.format('q%d%016d', row.held > 0 and 0 or 1, row.seat)
end

-- The members that stand for a claim in the sorted set.
local function members(row)
  return {
    row = 'r' .. row.id .. write_row(row),
    turn = waits(row) and turn(row) .. row.id or nil,
    ends = row.held > 0 and string.format('e%016d', frees_at(row)) .. row.id or nil,
  }
end

local function parse(member)
  local row = row_of(string.sub(member, 2, 17), cmsgpack.unpack(string.sub(member, 18)))
  row.stored = members(row)
  return row
end

-- Opens the lock. False: something that is not ours has its name.
local function open(name)
  key, wide, head, only, text = name, false, nil, nil, nil
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    text = redis.call('GET', key)
    local all = { pcall(cmsgpack.unpack, text) }
    if all[1] ~= true or all[2] ~= VERSION then
      return false
    end
    head = head_of(all[3], all[4], all[5], all[6], all[7])
    if all[8] then
      only = row_of(unpack(all, 8, 24))
      head.claims, head.held, head.waiting = 1, only.held, waits(only) and 1 or 0
    end
  elseif kind == 'zset' then
    wide = true
    text = fetch('[h', '(i', 'LIMIT', 0, 1)[1]
    local all = text and { pcall(cmsgpack.unpack, string.sub(text, 2)) } or {}
    if all[1] ~= true or all[2] ~= VERSION then
      return false
    end
    head = head_of(all[3], all[4], all[5], all[6], all[7])
    head.held, head.claims, head.waiting, head.lasts, head.patience, head.ttl = unpack(all, 8, 13)
  end
  return kind == 'none' or wide or text ~= nil
end

local function head_text()
  return 'h' .. cmsgpack.pack(VERSION, head.limit, head.effective, head.quiet_until, head.last, head.last_until,
    head.held, head.claims, head.waiting, head.lasts, head.patience, head.ttl)
end

local function row_by_id(id)
  if not wide then
    return only and only.id == id and only or nil
  end
  local member = fetch('[r' .. id, '[r' .. id .. '\255', 'LIMIT', 0, 1)[1]
  return member and parse(member)
end

local function rows()
  if not wide then
    return { only }
  end
  local all = fetch('[r', '(s')
  for i, member in ipairs(all) do
    all[i] = parse(member)
  end
  return all
end

local function holder(token)
  for _, row in ipairs(rows()) do
    if row.held > 0 and row.token == token then
      return row
    end
  end
end

local function insert(row)
  local was, is, gone, new = row.stored or {}, members(row), {}, {}
  for _, part in ipairs({ 'row', 'turn', 'ends' }) do
    if was[part] ~= is[part] then
      gone[#gone + 1] = was[part]
      if is[part] then
        new[#new + 1] = 0
        new[#new + 1] = is[part]
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', key, unpack(gone))
  end
  if #new > 0 then
    redis.call('ZADD', key, unpack(new))
  end
  row.stored = is
  head.patience = math.max(head.patience, row.patience)
  local at = lasts_until(row)
  if at > head.lasts then
    head.lasts = math.min(at + SPARE, NEVER)
  end
end

local function put(row)
  if not wide and (not only or only.id == row.id) then
    only = row
    return
  end
  if not wide then
    -- A second claim: from a string to a sorted set. It is never empty, or it would lose its end.
    wide, head.ttl = true, false
    redis.call('DEL', key)
    text = head_text()
    redis.call('ZADD', key, 0, text)
    insert(only)
    only = nil
  end
  insert(row)
end

local function remove(row)
  if not wide then
    only = nil
    return
  end
  for _, member in pairs(row.stored) do
    redis.call('ZREM', key, member)
  end
  row.stored = nil
  if head.lasts > now + EXCESS then
    head.recount = true
  end
end

local function front()
  if not wide then
    return only and waits(only) and only or nil
  end
  local first = fetch('[q', '(r', 'LIMIT', 0, 1)[1]
  return first and row_by_id(string.sub(first, -16))
end

local function ahead(row, at_most)
  return wide and math.min(redis.call('ZLEXCOUNT', key, '[q', '(' .. turn(row)), at_most) or 0
end

local function ended(at_most)
  if not wide then
    return { only and only.held > 0 and frees_at(only) <= now and only or nil }
  end
  local over = fetch('[e', string.format('(e%016d', now + 1), 'LIMIT', 0, at_most)
  for i, member in ipairs(over) do
    over[i] = row_by_id(string.sub(member, -16))
  end
  return over
end

local function next_end()
  if not wide then
    return only and only.held > 0 and frees_at(only) or NEVER
  end
  local first = fetch('[e', '(f', 'LIMIT', 0, 1)[1]
  return first and tonumber(string.sub(first, 2, 17)) or NEVER
end

-- The last end of all that is in the sorted set. Where claims wait, as late as any of them could last.
local function recount()
  local final = redis.call('ZREVRANGEBYLEX', key, '(f', '[e', 'LIMIT', 0, 1)[1]
  local at = final and tonumber(string.sub(final, 2, 17)) or 0
  if head.waiting > 0 then
    at = math.max(at, now + head.patience + GRACE)
  end
  return math.min(at + SPARE, NEVER)
end

local function write_wide()
  if head.recount then
    head.lasts, head.recount = recount(), nil
  end
  local ttl = head.effective ~= head.limit and NEVER or math.max(head.lasts, head.last_until)
  local moved = ttl ~= head.ttl
  head.ttl = ttl
  local now_text = head_text()
  if now_text ~= text then
    redis.call('ZREM', key, text)
    redis.call('ZADD', key, 0, now_text)
  end
  if moved and ttl >= NEVER then
    redis.call('PERSIST', key)
  elseif moved then
    redis.call('PEXPIREAT', key, ttl)
  end
end

-- Writes back what is in memory, in the form that fits.
local function write()
  if wide and head.claims > 1 then
    return write_wide()
  end
  if wide then
    only, text = rows()[1], nil
    redis.call('DEL', key)
  end
  if head.claims > 0 or head.effective ~= head.limit or now < head.last_until then
    local is = lock_text(head, only)
    if is ~= text then
      write_lock(key, is, head, only)
    end
  elseif text then
    redis.call('DEL', key)
  end
end
