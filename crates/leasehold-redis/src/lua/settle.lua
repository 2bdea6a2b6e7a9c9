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

local function expire()
  if now < head.quiet_until then
    return
  end
  for _, row in ipairs(ended(BURIED_PER_CALL)) do
    bury(row)
  end
  head.quiet_until = next_end()
end

local function settle()
  local buried = 0
  while head.waiting > 0 and buried < BURIED_PER_CALL do
    local row = front()
    if not row then
      break
    elseif row.held == 0 and is_expired(row) then
      bury(row)
      buried = buried + 1
    elseif not is_expired(row) and fits(row) then
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

local function tell(inbox, what)
  call('PUBLISH', 'leasehold.inbox:' .. inbox, inbox .. ' ' .. what .. ' ' .. key)
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

