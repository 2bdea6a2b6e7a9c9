-- The rule: who holds, who waits, who is next. A translation of crates/leasehold-core/src/rule, in its words; where the
-- two differ this is wrong. Here the walk from the front, which every verb ends with.
local BURIED_PER_CALL = 64

-- Whom to tell: claims that were granted by this call, inboxes whose claim was ended or asked for.
local promoted, told = {}, {}

local function is_expired(row)
  return row.expires and row.expires <= now
end

local function free()
  return math.max(head.effective - head.held, 0)
end

local function fits(row)
  return row.least - row.held <= free()
end

local function note_end(at)
  head.quiet_until = math.min(head.quiet_until, at)
end

local function grant(row, token)
  local more = math.min(row.wanted - row.held, free())
  row.held = row.held + more
  row.wanted, row.least, row.token, row.since = row.held, row.held, token, now
  head.held = head.held + more
end

local function bury(row)
  remove(row)
  head.held, head.claims = head.held - row.held, head.claims - 1
  if waits(row) then
    head.waiting = head.waiting - 1
  end
end

-- The mark that refuses an id. All keys of a lock end alike, so that they are in one slot: see names.rs.
local function mark_of(id)
  local hex = string.gsub(id, '.', function(c) return format('%02x', byte(c)) end)
  return 'leasehold.refused:' .. hex .. sub(key, 10)
end

-- Refuses an id from now on, for as long as late copies of its request may arrive.
local function refuse(id)
  local until_then = format('%d', now + LATE)
  -- Changes nothing, so that the mark can be written where memory is full.
  call('PERSIST', KEYS[1])
  call('SET', mark_of(id), until_then, 'PXAT', until_then)
end

-- Refuses late copies of the request that set a latch which ends now: a copy would set it again, for ever.
local function refuse_copies(row)
  if row.count then
    refuse(row.id)
  end
end

-- Opens the lock for a change. The source of a moving slot refuses to create a key, and a script that fails there keeps
-- what it wrote before. So the marks of latches that have ended are looked up first: the server refuses that as well.
local function open_to_change(name, found)
  if not open(name, found) then
    return false
  end
  local over = head and now >= head.quiet_until and ended(BURIED_PER_CALL)
  for _, row in ipairs(over or {}) do
    if row.count then
      call('EXISTS', mark_of(row.id))
    end
  end
  return true
end

local function expire()
  if now < head.quiet_until then
    return
  end
  for _, row in ipairs(ended(BURIED_PER_CALL)) do
    refuse_copies(row)
    bury(row)
  end
  head.quiet_until = next_end()
end

local function settle()
  local buried, before, row = 0, 0, nil
  while head.waiting > 0 and buried < BURIED_PER_CALL do
    row, before = front(before)
    if not row then
      break
    elseif row.held == 0 and is_expired(row) then
      bury(row)
      buried = buried + 1
    elseif not is_expired(row) and fits(row) then
      local wait = wait_for(0)
      if wait > 0 then
        -- The waiter at the front looks again when there is a number for it.
        note_end(now + wait)
        break
      end
      grant(row, number(0))
      head.waiting = head.waiting - 1
      note_end(frees_at(row))
      put(row)
      promoted[#promoted + 1] = row
    else
      break
    end
  end
  if buried == BURIED_PER_CALL and head.waiting > 0 then
    -- There may be more to do: whoever asks next goes on, and waiters are told to ask at once.
    note_end(now)
  end
end

local function catch_up()
  expire()
  settle()
end

-- Who is told believes it for its proof, which takes the secret.
local function tell(inbox, what)
  local said = inbox .. ' ' .. what .. ' ' .. key
  call('PUBLISH', 'leasehold.inbox:' .. inbox, redis.sha1hex(secret .. said .. secret) .. ' ' .. said)
end

-- Writes everything back and tells whom it concerns.
local function close(answer)
  if head.claims == 0 and now < head.last_until then
    note_end(head.last_until)
  end
  write()
  for _, row in ipairs(promoted) do
    tell(row.inbox, format('%d %d %d', row.seat, row.token, row.held))
  end
  for _, inbox in ipairs(told) do
    tell(inbox, '0 0 0')
  end
  promoted, told = {}, {}
  return answer
end

