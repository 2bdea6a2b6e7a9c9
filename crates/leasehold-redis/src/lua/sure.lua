--@ read
if last and is_sure == nil then
  -- Whether the fence was written in this life of the server. Who asks knows how that is called since it connected.
  -- That can change under a connection, when a primary is made a replica and a primary again: so once a second the
  -- long way asks the server itself.
  is_sure = sub(fence, -27) == second .. here
end
