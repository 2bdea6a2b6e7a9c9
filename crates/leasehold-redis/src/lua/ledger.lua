-- One lock's claims, as the rule asks for them: fetches and writes, decides nothing.
-- A lock is kept at most this much longer than need be, when a claim that would have stayed for long goes early.
local EXCESS = 60000
-- How many members of the queue are fetched together where some of them may be passed over.
local CHUNK = 64

-- The lock's name; whether it is a sorted set; its head; the one claim that is not in the set; what is known about the
-- set; and how the head was written, the claim with it.
local key, wide, head, only, set, text

local function read_head(found)
  text = found
  if byte(found, 18) ~= OTHER then
    local limit = column(found, 35)
    head = head_of(limit, limit, column(found, 75), 0, 0)
    only = read_plain(found, 2, column(found, 67), true, sub(found, 83))
  else
    local used, limit, effective, quiet_until, last, last_until = cmsgpack.unpack_limit(sub(found, 19), 5, 0)
    head = head_of(limit, effective, quiet_until, last, last_until)
    only = used > 0 and read_other(sub(found, 2, 17), sub(found, used + 19)) or nil
  end
  if only then
    head.claims, head.held, head.waiting = 1, only.held, waits(only) and 1 or 0
  end
end

-- The set as a whole: until when its claims last, the longest patience in it, when its key ends, how many of its
-- claims hold, how many of those want more, and how much they hold together.
local function set_of(lasts, patience, ttl, holders, growing, held)
  return { lasts = lasts, patience = patience, ttl = ttl, holders = holders, growing = growing, held = held }
end

local function set_text()
  return columns('>BI8I8', ABOUT, set.lasts, set.patience) .. pack(set.ttl, set.holders, set.growing, set.held)
end

-- Opens the lock. `found` is the string under its name, false when that is nothing or no string. The answer is false
-- when something that is not ours has its name.
local function open(name, found)
  key, wide, head, only, set, text = name, false, nil, nil, nil, nil
  if found then
    if byte(found) ~= VERSION then
      return false
    end
    read_head(found)
    return true
  end
  local first = redis.pcall('ZRANGE', key, 0, 1)
  if first.err then
    return false
  elseif not first[1] then
    return true
  elseif byte(first[1]) ~= VERSION or byte(first[2] or '') ~= ABOUT then
    return false
  end
  wide = true
  read_head(first[1])
  set = set_of(column(first[2], 2), column(first[2], 10), cmsgpack.unpack(sub(first[2], 18)))
  set.text = first[2]
  local waiting = (call('ZCARD', key) - 2 - 2 * set.holders - set.growing) / 2
  head.claims = head.claims + set.holders + waiting
  head.held = head.held + set.held
  head.waiting = head.waiting + set.growing + waiting
  return true
end

local function score(row)
  return format('%d', row.held > 0 and frees_at(row) - NEVER or row.seat)
end

-- Adds a claim that is written in the set to what is known about that, or with -1 takes it away.
local function count(row, by)
  if row.held > 0 then
    set.holders, set.held = set.holders + by, set.held + by * row.held
    set.growing = set.growing + (waits(row) and by or 0)
  end
end

local function parse(member)
  local row
  if byte(member, 17) ~= OTHER then
    row = read_plain(member, 1, 0, false, sub(member, 66))
  else
    row = read_other(sub(member, 1, 16), sub(member, 18))
  end
  -- As it is written, so that it can be found when it has changed.
  row.was = { text = member, held = row.held, wanted = row.wanted }
  return row
end

local function row_by_id(id)
  if only and only.id == id then
    return only
  end
  local rank = wide and call('ZRANK', key, id)
  return rank and parse(call('ZRANGE', key, rank + 1, rank + 1)[1])
end

local function rows()
  local all = { only }
  for _, member in ipairs(wide and call('ZRANGE', key, 2, -1) or {}) do
    if #member > 17 then
      all[#all + 1] = parse(member)
    end
  end
  return all
end

-- The claims that hold. Waiters are not looked at: they stand behind all holders.
local function holders()
  if only then
    return only.held > 0 and { only } or {}
  end
  local all = {}
  for i, member in ipairs(wide and set.holders > 0 and call('ZRANGE', key, 2, 1 + 2 * set.holders) or {}) do
    if i % 2 == 0 then
      all[#all + 1] = parse(member)
    end
  end
  return all
end

local function holder(token)
  for _, row in ipairs(holders()) do
    if row.token == token then
      return row
    end
  end
end

local function erase(row)
  call('ZREM', key, row.id, row.was.text, row.id .. 'g')
  count(row.was, -1)
  row.was = nil
end

local function last_to(at)
  if at > set.lasts then
    set.lasts = math.min(at + SPARE, NEVER)
  end
end

local function insert(row)
  local member = member_text(row, head.limit)
  local was = row.was
  if was and was.text ~= member then
    call('ZREM', key, was.text, row.id .. 'g')
  end
  if not was or was.text ~= member then
    local at = score(row)
    call('ZADD', key, at, row.id, at, member)
    if row.held > 0 and waits(row) then
      call('ZADD', key, row.seat / NEVER, row.id .. 'g')
    end
  end
  if was then
    count(was, -1)
  end
  count(row, 1)
  row.was = { text = member, held = row.held, wanted = row.wanted }
  set.patience = math.max(set.patience, row.patience)
  last_to(lasts_until(row))
end

local function holds_all(row)
  return row.held > 0 and not waits(row)
end

-- A second claim: from a string to a sorted set, which is never empty, or it would lose its end.
local function widen()
  local first = only
  if not holds_all(first) then
    only = nil
  end
  wide, set = true, set_of(0, 0, false, 0, 0, 0)
  text, set.text = lock_text(head, only), set_text()
  call('DEL', key)
  call('ZADD', key, '-inf', text, '-inf', set.text)
  if not only then
    insert(first)
  end
end

local function put(row)
  local is_only = not only or only.id == row.id
  if not wide and is_only then
    only = row
    return
  elseif not wide then
    widen()
    is_only = not only
  end
  local others = set.holders - (row.was and row.was.held > 0 and 1 or 0)
  if holds_all(row) and is_only and others == 0 then
    -- The one that holds.
    if row.was then
      erase(row)
    end
    only = row
    return
  end
  if only and (only.id == row.id or row.held > 0) then
    local first = only
    only = nil
    if first.id ~= row.id then
      insert(first)
    end
  end
  insert(row)
end

local function remove(row)
  if only and only.id == row.id then
    only = nil
  else
    erase(row)
  end
  if wide and set.lasts > now + EXCESS then
    set.recount = true
  end
end

-- Where in the set the queue starts: behind the head, what is known about the set, and those who hold.
local function queue()
  return 2 + 2 * set.holders
end

-- Whether the walk passes a claim over: it asks for more than there is while the limit is lowered.
local function is_passed_over(row)
  return row.least > head.effective and not (row.held == 0 and row.expires and row.expires <= now)
end

-- The first of those who wait that is not passed over, and how many members stand before it in the queue. All of the
-- first `before` are passed over. Only a lowered limit can leave such claims.
local function front_of_lowered(before)
  if not wide then
    return only and waits(only) and not is_passed_over(only) and only or nil, 0
  end
  repeat
    local from = queue() + before
    local members = call('ZRANGE', key, from, from + CHUNK - 1)
    for i, member in ipairs(members) do
      -- The members of a claim: one if it holds and wants more, else its id and the claim itself.
      local row, size
      if #member == 17 then
        row, size = row_by_id(sub(member, 1, 16)), 1
      elseif #member > 17 then
        row, size = parse(member), 2
      end
      if row and not is_passed_over(row) then
        return row, before + i - size
      end
    end
    before = before + #members
  until #members < CHUNK
  return nil, before
end

-- The first of those who wait that is not passed over. `before` is what the last call answered, or 0.
local function front(before)
  if head.effective < head.limit then
    return front_of_lowered(before)
  elseif not wide then
    return only and waits(only) and only or nil, 0
  end
  local first = call('ZRANGE', key, queue(), queue() + 1)
  if first[1] and #first[1] == 17 then
    return row_by_id(sub(first[1], 1, 16)), 0
  end
  return first[2] and parse(first[2]), 0
end

-- The first who wait and hold nothing.
local function waiters(at_most)
  if not wide then
    return { only and only.held == 0 and only or nil }
  end
  local all, from = {}, queue() + set.growing
  for i, member in ipairs(call('ZRANGE', key, from, from + 2 * at_most - 1)) do
    if i % 2 == 0 then
      all[i / 2] = parse(member)
    end
  end
  return all
end

local function ahead(row, at_most)
  if not wide then
    return 0
  end
  local before = call('ZRANK', key, row.held > 0 and row.id .. 'g' or row.id) - queue()
  if row.held == 0 then
    before = (before + set.growing) / 2
  end
  return math.min(before, at_most)
end

local function ended(at_most)
  if only then
    return { only.held > 0 and frees_at(only) <= now and only or nil }
  end
  local over = {}
  local found = wide and call('ZRANGEBYSCORE', key, '(-inf', format('%d', now - NEVER), 'LIMIT', 0, 2 * at_most)
  for i, member in ipairs(found or {}) do
    if i % 2 == 0 then
      over[i / 2] = parse(member)
    end
  end
  return over
end

-- When the first or the last of those in the set that hold ends, by its rank.
local function end_at(rank)
  return set.holders > 0 and call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] + NEVER
end

-- When the last of those who hold ends; nothing where nobody does.
local function last_end()
  if only then
    return only.held > 0 and frees_at(only)
  end
  return wide and end_at(queue() - 1)
end

local function next_end()
  if only or not wide then
    return only and only.held > 0 and frees_at(only) or NEVER
  end
  return end_at(2) or NEVER
end

-- The last end of all that is in the set. Where claims wait, as late as any of them could last.
local function recount()
  local at = end_at(queue() - 1) or 0
  if head.waiting > 0 then
    at = math.max(at, now + set.patience + GRACE)
  end
  return math.min(at + SPARE, NEVER)
end

local function write_wide()
  if set.recount then
    set.lasts, set.recount = recount(), nil
  end
  if only then
    last_to(lasts_until(only))
  end
  local ttl = head.effective ~= head.limit and NEVER or math.max(set.lasts, head.last_until)
  local moved = ttl ~= set.ttl
  set.ttl = ttl
  local head_is, set_is = lock_text(head, only), set_text()
  if head_is ~= text then
    call('ZADD', key, '-inf', head_is)
    call('ZREM', key, text)
  end
  if set_is ~= set.text then
    call('ZADD', key, '-inf', set_is)
    call('ZREM', key, set.text)
  end
  if moved and ttl >= NEVER then
    call('PERSIST', key)
  elseif moved then
    call('PEXPIREAT', key, format('%d', ttl))
  end
end

-- Writes a string so that it ends with what is in it.
local function write_text(is)
  local ends = math.max(head.last_until, only and lasts_until(only) or 0)
  if head.effective ~= head.limit or ends >= NEVER then
    call('SET', key, is)
  else
    call('SET', key, is, 'PXAT', format('%d', ends))
  end
end

-- Writes back what is in memory, in the form that fits. Over what is there: where a slot is being moved, what was
-- deleted could not be written again.
local function write()
  if wide and head.claims > 1 then
    return write_wide()
  end
  if wide then
    only, text = rows()[1], nil
  end
  if head.claims > 0 or head.effective ~= head.limit or now < head.last_until then
    local is = lock_text(head, only)
    if is ~= text then
      write_text(is)
    end
  elseif text or wide then
    call('DEL', key)
  end
end
