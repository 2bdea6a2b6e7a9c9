--@ read
if last and is_sure == nil then
  -- Whether the fence was written in this life of the server.
  is_sure = string.find(call('INFO', 'replication'), 'master_replid:' .. string.sub(fence, -40), 1, true)
end
