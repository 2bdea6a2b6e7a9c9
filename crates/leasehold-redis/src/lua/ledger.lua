-- One lock's claims, as the rule asks for them: fetches and writes, decides nothing.
-- A lock with many claims is kept this much longer than its last claim, so that not every renewal moves its end.
local SPARE = 5000
-- And at most this much longer, when a claim that would have stayed for long goes early.
local EXCESS = 60000

local key, wide, head, only, text

local function fetch(from, to, ...)
  return call('ZRANGEBYLEX', key, from, to, ...)
end

local function turn_text(held, seat)
  return string.format('q%d%016d', held > 0 and 0 or 1, seat)
end

local function end_text(at)
  return string.format('e%016d', at)
end

-- Remembers how a claim is written, so that it can be found when it has changed.
local function note(row, member)
  row.was, row.was_held, row.was_wanted, row.was_end = member, row.held, row.wanted, frees_at(row)
  return row
end

local function parse(member)
  return note(row_of(string.sub(member, 2, 17), cmsgpack.unpack(string.sub(member, 18))), member)
end

-- Opens the lock. `string_there` is what was found under its name, false when that is nothing or no string. The answer is
-- false when something that is not ours has its name.
local function open(name, string_there)
  key, wide, head, only, text = name, false, nil, nil, nil
  if string_there then
    if string.byte(string_there) ~= VERSION then
      return false
    end
    text = string_there
    local all = { cmsgpack.unpack(text) }
    head = head_of(all[2], all[3], all[4], all[5], all[6])
    if all[7] then
      only = row_of(unpack(all, 7, 23))
      head.claims, head.held, head.waiting = 1, only.held, waits(only) and 1 or 0
    end
    return true
  end
  local found = redis.pcall('ZRANGEBYLEX', key, '[h', '(i', 'LIMIT', 0, 1)
  if found.err then
    return false
  elseif not found[1] then
    return call('EXISTS', key) == 0
  elseif string.byte(found[1], 2) ~= VERSION then
    return false
  end
  wide, text = true, found[1]
  local all = { cmsgpack.unpack(string.sub(text, 2)) }
  head = head_of(all[2], all[3], all[4], all[5], all[6])
  head.held, head.claims, head.waiting, head.lasts, head.patience, head.ttl = unpack(all, 7, 12)
  return true
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

-- Adds the members to `list` by which a claim with these numbers is found.
local function list_members(list, score, row, member, held, wanted, ends)
  local function add(what)
    list[#list + 1] = score
    list[#list + 1] = what
  end
  add(member)
  if held < wanted then
    add(turn_text(held, row.seat) .. row.id)
  end
  if held > 0 then
    add(end_text(ends) .. row.id)
  end
  return list
end

local function insert(row)
  local member = 'r' .. row.id .. write_row(row)
  if row.was ~= member then
    if row.was then
      call('ZREM', unpack(list_members({ key }, nil, row, row.was, row.was_held, row.was_wanted, row.was_end)))
    end
    call('ZADD', unpack(list_members({ key }, 0, row, member, row.held, row.wanted, frees_at(row))))
    note(row, member)
  end
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
    call('DEL', key)
    text = head_text()
    call('ZADD', key, 0, text)
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
  call('ZREM', unpack(list_members({ key }, nil, row, row.was, row.was_held, row.was_wanted, row.was_end)))
  row.was = nil
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
  return wide and math.min(call('ZLEXCOUNT', key, '[q', '(' .. turn_text(row.held, row.seat)), at_most) or 0
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
  local final = call('ZREVRANGEBYLEX', key, '(f', '[e', 'LIMIT', 0, 1)[1]
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
    call('ZREM', key, text)
    call('ZADD', key, 0, now_text)
  end
  if moved and ttl >= NEVER then
    call('PERSIST', key)
  elseif moved then
    call('PEXPIREAT', key, ttl)
  end
end

-- Writes back what is in memory, in the form that fits.
local function write()
  if wide and head.claims > 1 then
    return write_wide()
  end
  if wide then
    only, text = rows()[1], nil
    call('DEL', key)
  end
  if head.claims > 0 or head.effective ~= head.limit or now < head.last_until then
    local is = lock_text(head, only)
    if is ~= text then
      write_lock(key, is, head, only)
    end
  elseif text then
    call('DEL', key)
  end
end
