-- release: gives back, or leaves the queue.
-- keys: the fence, the lock and, to refuse the id from now on, its mark
-- arguments: the claim's id, for how many milliseconds to refuse it
-- result: what was found
--@ clock
--@ format
local id, refuse_for = ARGV[1], tonumber(ARGV[2])
if KEYS[3] then
  -- Changes nothing, so that the mark can be written where memory is full.
  call('PERSIST', KEYS[1])
  -- Also when the claim is there: it may be asked twice, and the other copy still be on the way.
  call('SET', KEYS[3], string.format('%d', now + refuse_for), 'PXAT', now + refuse_for)
end
-- No error where it is no string: then it is nothing, or several claims.
local alone = call('MGET', KEYS[2])[1]
local first = alone and { alone } or redis.pcall('ZRANGE', KEYS[2], '0', '5')
local text, about, front, following = first[1], first[2], first[4], first[6]
if text and string.byte(text) == VERSION and (alone or about and string.byte(about) == 110) then
  local _, _, limit, effective, quiet_until, last, last_until, owner, expires, _, _, _, held = unpack_some(text, 12, 0)
  if owner == id and effective == limit and last_until <= now and held > 0 and (not expires or expires > now) then
    if alone then
      -- The only claim, and nothing else to remember: most releases end here.
      call('DEL', KEYS[2])
      return { 'held' }
    end
    local fixed, due, lease, seat, _, _, wanted, least = unpack_some(front, 8, 16)
    local _, _, lock_delay, inbox = unpack_some(front, 3, fixed)
    local _, kept = unpack_some(about, 1, 1)
    local units, frees = math.min(wanted, limit), due + lock_delay
    -- One holds all, and who comes next: most other releases hand over.
    if now < quiet_until and due > now and least <= limit and frees <= kept
        and (not following or units == limit and select(2, unpack_some(following, 1, 16)) > now) then
      local fence = call('GET', KEYS[1])
      if fence and string.find(call('INFO', 'replication'), 'master_replid:' .. string.sub(fence, -40), 1, true) then
        local token = math.max(string.sub(fence, 1, 16) + 1, micros)
        local now_text = pack(VERSION, limit, limit, math.min(quiet_until, frees), last, last_until, first[3], due, lease,
          seat, token, units, units, units, now) .. string.sub(front, fixed + 1)
        -- The first write frees memory, so that there is some where all was used.
        if following then
          call('ZREM', KEYS[2], text, first[3], front)
          call('ZADD', KEYS[2], '-inf', now_text)
        else
          call('DEL', KEYS[2])
          call('SET', KEYS[2], now_text, 'PXAT', string.format('%d', frees))
        end
        call('SET', KEYS[1], string.format('%016d', token) .. string.sub(fence, 17))
        call('PUBLISH', 'leasehold.inbox:' .. inbox, string.format('%s %d %d %d %s', inbox, seat, token, units, KEYS[2]))
        return { 'held' }
      end
    end
  end
end
--@ row
--@ fence
--@ ledger
--@ settle
if not open(KEYS[2], alone) then
  return { 'foreign' }
end
local row = head and row_by_id(id)
if not row then
  return { 'gone' }
end
-- Changes nothing, so that a grant can be written where memory is full.
call('PERSIST', KEYS[1])
local answer = { 'held' }
if row.held == 0 then
  answer = { 'waiting' }
elseif is_expired(row) then
  answer = { 'gone' }
end
-- A holder that is over cannot cut its lock delay short by releasing late.
if answer[1] ~= 'gone' then
  bury(row)
end
catch_up()
return close(answer)
