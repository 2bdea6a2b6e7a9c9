-- The fence as the short ways use it (see fence.lua): its text and the last number, once it was read; whether no number
-- was forgotten; up to where it is written, and how many more numbers this script may draw after one.
local fence, last, is_sure
local written, spare = 0, 0
