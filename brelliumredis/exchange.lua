-- One exchange of a worker with the record that all workers of a bucket share.
-- It runs atomically and uses the server's clock only. All numbers are doubles;
-- times are in microseconds, rates in tokens a second. TestScriptAgreesWithModel
-- checks that model_test.go does the same in Go.
--
-- KEYS
--   1  the record, a hash
--   2  the tickets by their turn; one a worker
--   3  the same tickets by the end of their lease
--   4  the attempts in flight by the time they were sent
-- ARGV
--   1  the worker
--   2  the refill of the bucket
--   3  its capacity, until a response reports it
--   4  1: a call waits for its turn; otherwise the worker's ticket is removed
--   5  the place of its ticket: f, first, since a call was rate limited before;
--      i, interactive; n, normal; b, background
--   6  the place of the next ticket if more calls wait behind that one
--   7  the longest wait that is useful to any of them, or -1
--   8  tokens spent without a grant since the last exchange
--   9  attempts in flight that the record does not have
--   10 the last attempt granted to the worker
--   then eight for each result:
--   kind, attempt, epoch, ended, age, remaining, limit, wait asked for

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local second = 1000000
local attempt_lease = 30 * second -- an older attempt counts as ended
local reach = 10 * second         -- an older attempt has reached the server
local ticket_slack = 2 * second   -- a worker this late for its turn is dead
local clock_slack = 5 * second    -- a larger step back means that the clock was set
local memory = 10                 -- seconds until unexplained spending is forgotten
local ask_again = 10 * second     -- in a pause, since another worker may end it
local max_probes = 8
local max_limit = 1000000
-- What is added to the number of a ticket to get its turn, by its place. An
-- interactive ticket overtakes at most the normal ones of the last 64 draws and the
-- background ones of the last 128, so nobody starves.
local shifts = {f = -1000000000000, i = -64, n = 0, b = 64}
local max_hold = 330 * second      -- also of what others wrote: no pause is longer
local most = 9000000000000000     -- integers are exact up to here
local eps = 0.000000001

local min, max = math.min, math.max

local function num(s, default, least, greatest)
  local n = s and tonumber(s)
  if not n or n ~= n then return default end
  return min(max(n, least), greatest)
end

local function str(n) return string.format('%.17g', n) end

local worker = ARGV[1]
local rate = num(ARGV[2], 5, 0.000001, max_limit)
local probe_every = 1.25 / rate * second -- slower than the refill
local others_floor = 0.004 * rate
local idle = max(memory, 4 / rate)

local f = redis.call('HMGET', KEYS[1], 'epoch', 'at', 'low', 'high', 'limit', 'known', 'ended',
  'serial', 'hold', 'others', 'probes', 'probe', 'from', 'mark', 'debt', 'learned', 'looked',
  'granted', 'newest', 'newest_at', 'newest_left', 'unspent', 'trend')
local epoch = num(f[1], 0, 0, most)   -- when this record was started; 0: there is none
local at = num(f[2], 0, 0, most)      -- time of the bounds; it never goes back
local low = num(f[3], 0, -most, most) -- bounds of the server's tokens, less the
local high = num(f[4], 0, -most, most) -- attempts that have not reached it
local limit = num(f[5], num(ARGV[3], 100, 1, max_limit), 1, max_limit)
local known = num(f[6], 0, 0, 1)      -- 0: the bounds are unknown, attempts are probes
local ended = num(f[7], 0, 0, most)   -- ended attempts that may have spent a token
local serial = num(f[8], 0, 0, most)  -- the last ticket
local hold = num(f[9], 0, 0, most)    -- nothing is sent before
local others = num(f[10], 0, 0, 0.9 * rate) -- unexplained spending a second
local probes = num(f[11], 0, 0, max_probes) -- probes in flight
local probe = num(f[12], 0, 0, most)  -- the earliest next probe
local from = num(f[13], 0, 0, most)   -- when probing started
local mark = num(f[14], 0, 0, most)   -- attempts up to this one are too old to use
local debt = num(f[15], 0, 0, max_limit) -- tokens that the first response does not count
local learned = num(f[16], 0, 0, most) -- the last attempt when the first response came
local looked = num(f[17], 0, 0, most) -- when all workers that waited for it have asked
local attempts = num(f[18], 0, 0, most) -- number of grants, and id of the last attempt
local newest = num(f[19], 0, 0, most) -- the last attempt with a reported result
local newest_at = num(f[20], 0, 0, most) -- when it was sent
local newest_left = num(f[21], 0, 0, max_limit) -- what remained after it
local unspent = num(f[22], 0, 0, most) -- attempts since then that spent nothing
local trend = num(f[23], 0, -most, most) -- unexplained spending a second, from one response to the next

local function look() return max(probe_every, (now - from) / 2) end

local function learn()
  known, debt, learned, looked = 1, 0, attempts, now + look()
end

local function forget()
  known, low, high, others, trend, probes = 0, 0, limit, 0, 0, 0
  probe, from, mark = now, now, attempts
end

if epoch == 0 or now < at - clock_slack then
  -- There is no record, or the clock was set back. Keep the pause that a 429
  -- asked for, and probe the bucket.
  local held = 0
  if epoch > 0 then held = min(max(hold - at, 0), max_hold) end
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  epoch, at, hold, ended, serial, debt = now, now, now + held, 0, 0, 0
  attempts, newest = 0, 0
  forget()
end
now = max(now, at)
hold, looked = min(hold, now + max_hold), min(looked, now + max_hold)
probe = min(probe, now + probe_every)
local passed = (now - at) / second
at = now

-- Remove what has outlived its lease.
local lost = redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', str(now - attempt_lease))
high = high + lost
ended = ended + lost
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', str(now))) do
  redis.call('ZREM', KEYS[2], gone)
  redis.call('ZREM', KEYS[3], gone)
end
local in_flight = redis.call('ZCARD', KEYS[4])

-- The lower bound leaves room for the attempts that have not reached the server.
-- After a while every attempt has.
local function bound()
  local owed = -limit - max_hold / second * rate -- lower ones are not believed
  high = max(min(high, limit), owed)
  low = min(low, limit - redis.call('ZCOUNT', KEYS[4], '(' .. str(now - reach), '+inf'), high)
  low = max(low, owed)
end

low = low + passed * (rate - others)
high = high + passed * rate
others = others * max(0, 1 - passed / memory)
trend = trend * max(0, 1 - passed / memory)
if known == 1 and passed > idle then forget() end
if known == 0 and probes >= max_probes and now - probe > attempt_lease then probes = 0 end
bound()

for i = 11, #ARGV - 7, 8 do
  local kind = ARGV[i]
  local attempt = num(ARGV[i + 1], 0, 0, most)
  local same = num(ARGV[i + 2], 0, 0, most) == epoch
  local age = num(ARGV[i + 4], 0, 0, most) / second
  local reported = num(ARGV[i + 6], 0, 0, max_limit)
  local found = same and redis.call('ZREM', KEYS[4], str(attempt)) == 1
  if found then
    in_flight = in_flight - 1
    if known == 0 then probes = max(0, probes - 1) end
  end
  if reported >= 1 then limit = reported end

  if kind == 'rate-limited' then
    if found then low, high, unspent = low + 1, high + 1, unspent + 1 end
    if known == 1 then
      others = min(0.9 * rate, others + max(0, low - 1 - rate * age) / memory)
      low = min(low, 0)
    else
      low = 0 - debt
      learn()
    end
    high = min(high, 1 + rate * age)
    hold = max(hold, now + num(ARGV[i + 7], second, 0, max_hold))
  elseif kind == 'resume' then
    hold = 0
  elseif kind == 'unspent' then
    if found then low, high, unspent = low + 1, high + 1, unspent + 1 end
  elseif kind == 'blocked' then
    if found then high, ended = high + 1, ended + 1 end
    low = min(low, 0)
  elseif kind == 'spent' then
    local after = in_flight + ended - num(ARGV[i + 3], ended, 0, ended)
    if found then ended = ended + 1 end
    local remaining = num(ARGV[i + 5], 0, 0, limit)
    if same and attempt > newest then
      local sent = now - age * second
      if known == 1 and newest > 0 then
        local expected = min(limit, newest_left + rate * (sent - newest_at) / second)
          - (attempt - newest) + unspent
        trend = trend + (expected - remaining) / memory
      end
      newest, newest_at, newest_left, unspent = attempt, sent, remaining, 0
    end
    local bottom, top = remaining - after, remaining + 1 + rate * age
    if not same or (known == 0 and attempt <= mark) then
      -- too old to use
    elseif known == 0 then
      low, high = bottom - debt, top
      learn()
    elseif top < low - eps then -- only the spending of others explains it
      others = min(0.9 * rate, others + (low - top) / memory)
      low, high = bottom, top
    elseif bottom > high + eps then -- an attempt was lost, or the refill is faster
      low, high = bottom, top
    else
      low, high = max(low, bottom), min(high, top)
    end
  elseif found then -- 'paid' or 'unknown': the next response shows what was spent
    ended = ended + 1
    if kind ~= 'paid' then high = high + 1 end
  end
  bound()
end

local spent = num(ARGV[8], 0, 0, max_limit)
local unseen = num(ARGV[9], 0, 0, max_limit)
if known == 1 then low = low - spent else debt = min(debt + unseen, max_limit) end

local served = num(ARGV[10], 0, 0, most)
-- The bounds prove that others spend, but only what exceeds their width. Once
-- that is proved, the trend is a better estimate, since the errors of consecutive
-- responses cancel out.
local spending = others
if others > others_floor then spending = min(0.9 * rate, max(others, trend)) end
local need = 1 + min(2 + min(8, 4 * spending), (limit - 1) / 2) -- the token and the reserve
local refill = rate - spending

-- turn returns how long the worker of a ticket must wait before it asks again and,
-- if that is not positive, how long after the grant the attempt is to be sent. The
-- next token is granted before it is due, which saves an exchange and hides the
-- latency of Redis.
local function turn(ahead)
  if known == 1 then
    local short = (need + ahead - low) / refill * second
    local wait = short - second / refill - 1
    if spending > others_floor then wait = min(wait, memory * second) end -- it may end sooner
    wait = max(min(hold - now, ask_again), wait)
    -- Workers that were served wait until the others have asked once.
    if served > learned and ahead > 0 then wait = max(wait, looked - now) end
    return wait, max(short, 0)
  end
  local wait = look()
  if probes < max_probes then wait = min(wait, probe + ahead * probe_every - now) end
  return max(min(hold - now, ask_again), wait), 0
end

local function drop()
  redis.call('ZREM', KEYS[2], worker)
  redis.call('ZREM', KEYS[3], worker)
end

-- place draws a ticket for the worker, unless it has one with an earlier turn. It
-- returns how many are before it.
local function place(shift)
  local score = tonumber(redis.call('ZSCORE', KEYS[2], worker) or nil)
  if not score or serial + 1 + shift < score then
    serial = serial + 1
    redis.call('ZADD', KEYS[2], str(serial + shift), worker)
  end
  return redis.call('ZRANK', KEYS[2], worker)
end

local granted, attempt, snapshot, probing, delay = 0, 0, 0, 0, 0
local ticket, ahead, wait, least = 0, 0, 0, 0
if ARGV[4] == '1' then
  ticket = 1
  ahead = place(shifts[ARGV[5]] or 0)
  wait, delay = turn(ahead)
  if wait <= 0 then
    drop()
    attempts = attempts + 1
    granted, attempt, snapshot, probing = 1, attempts, ended, 1 - known
    served = attempts
    delay = math.ceil(delay)
    redis.call('ZADD', KEYS[4], str(now + delay), str(attempt))
    in_flight = in_flight + 1
    low, high = low - 1, high - 1
    bound()
    if known == 0 then probes, probe = probes + 1, now + probe_every end
    ticket = 0
    if shifts[ARGV[6]] then
      ticket = 1
      ahead = place(shifts[ARGV[6]])
      wait = turn(ahead)
    end
  end
end
if ticket == 1 then
  wait = math.ceil(min(max(wait, 0), max_hold))
  least = hold - now
  if known == 1 then least = max(least, (1 + ahead - high) / rate * second) end
  least = math.ceil(min(max(least, 0), max_hold))
  local budget = num(ARGV[7], -1, -1, most)
  if budget >= 0 and least > budget then
    ticket = 0
  else
    redis.call('ZADD', KEYS[3], str(now + wait + ticket_slack), worker)
  end
end
if ticket == 0 then drop() end

redis.call('HSET', KEYS[1], 'epoch', str(epoch), 'at', str(at), 'low', str(low), 'high', str(high),
  'limit', str(limit), 'known', str(known), 'ended', str(ended), 'serial', str(serial),
  'hold', str(hold), 'others', str(others), 'probes', str(probes), 'probe', str(probe),
  'from', str(from), 'mark', str(mark), 'debt', str(debt), 'learned', str(learned), 'looked', str(looked),
  'granted', str(attempts), 'newest', str(newest), 'newest_at', str(newest_at),
  'newest_left', str(newest_left), 'unspent', str(unspent), 'trend', str(trend))
-- A record kept too long is harmless: it counts as unknown.
local keep = string.format('%d', math.ceil((max(hold - now, 0) + 600 * second) / 1000))
for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], keep) end

return {granted, epoch, attempt, snapshot, probing, delay * granted, ticket, ahead, wait, least,
  math.ceil(max(hold - now, 0)), str(high), redis.call('ZCARD', KEYS[2]), spending > others_floor and 1 or 0}
