-- The rule, continued: what only the verbs need that bring, keep and change claims.
local HEAD_LOOKS = 1000
local COUNTED = 64

-- An answer with one number.
local function say(word, number)
  return word .. struct.pack('>i8', number)
end

-- Starts a lease again: one of this length, or its patience where it waits. What is left of a longer one counts until it
-- has ended.
local function extend(row, lease)
  local length = lease
  if row.held == 0 then
    length = row.patience
  end
  row.expires = length and math.max(now + length, row.expires or 0)
  row.lease = lease
  if row.held > 0 and lease then
    row.lease = row.expires - now
  end
end

-- What a claim is called that nobody owns.
local function ownerless(seat)
  return string.rep('\0', 8) .. struct.pack('>I8', seat)
end

-- Leaves a seat out of those who are told: its owner learns it from the answer.
local function keep_from(seat)
  local others, found = {}, false
  for _, row in ipairs(promoted) do
    if row.seat == seat then
      found = true
    else
      others[#others + 1] = row
    end
  end
  promoted = others
  return found
end

-- Whether a claim on the lock is alive. Does not walk through the queue: where the first waiters have all expired they
-- are buried, and whoever asks again looks at the next ones.
local function is_in_use()
  local ends = last_end()
  if head.effective ~= head.limit or ends and ends > now then
    return true
  end
  local first = waiters(BURIED_PER_CALL)
  for _, row in ipairs(first) do
    if not is_expired(row) then
      return true
    end
  end
  if #first < BURIED_PER_CALL then
    return false
  end
  for _, row in ipairs(first) do
    bury(row)
  end
  return true
end

-- The resource as this claim finds it, or why it may not have it.
local function enter(asked)
  if not head then
    head = head_of(asked.limit, asked.limit, NEVER, 0, 0)
  elseif head.limit ~= asked.limit then
    if is_in_use() then
      return close(say('limit', head.limit))
    end
    for _, row in ipairs(holders()) do
      refuse_copies(row)
    end
    -- Nobody holds any more and nobody waits: whatever is left is written over.
    wide, only, set = false, nil, nil
    head = head_of(asked.limit, asked.limit, NEVER, head.last, head.last_until)
  end
end

-- What is left of a lease: -1 for one without end, -2 when this request did not extend it.
local function left(row, extended)
  if not extended then
    return -2
  end
  return row.expires and math.max(row.expires - now, 0) or -1
end

local function granted(row, extended)
  return columns(STANDS, 'granted', row.seat, row.token, row.held, left(row, extended), row.asked and 1 or 0)
end

local function waiting(row, extended)
  local before = ahead(row, COUNTED)
  local end_in = math.max(head.quiet_until - now, 0)
  local look_in = math.floor(row.patience / 3)
  if before == 0 then
    look_in = math.min(end_in, HEAD_LOOKS)
  elseif end_in == 0 then
    -- The last walk was cut short: somebody must go on with it.
    look_in = 0
  end
  return columns(STANDS, 'waiting', row.seat, before, look_in, row.held, left(row, extended))
end

local function standing(id, extended)
  local row = row_by_id(id)
  if not row then
    return 'gone'
  end
  return waits(row) and waiting(row, extended) or granted(row, extended)
end

-- Keeps what a quorum agreed on for longer than the claim can live.
local function remember(asked, row)
  if asked.keep and head.last > 0 then
    head.last_until = math.max(head.last_until, math.min(frees_at(row) + asked.keep, NEVER))
  end
end

-- Lets time pass for a claim that is there, extends its lease if it is still alive, and says how it stands.
local function look_after(row, asked, extends)
  local alive = row.held == 0 or not is_expired(row)
  if alive and extends then
    extend(row, asked.lease)
    if row.held > 0 then
      note_end(frees_at(row))
    end
    remember(asked, row)
    put(row)
  end
  -- Where nobody waits nothing can change hands, and ten thousand renewals need not walk.
  if head.waiting > 0 then
    catch_up()
  end
  if keep_from(row.seat) then
    -- Its own request found it promoted: the owner is alive, so the full lease may start.
    row = row_by_id(asked.id)
    if extends then
      extend(row, asked.lease)
      put(row)
    end
  end
  return close(alive and standing(asked.id, extends) or 'gone')
end

local function renew(asked)
  local row = head and row_by_id(asked.id)
  return row and look_after(row, asked, asked.extends) or 'gone'
end
