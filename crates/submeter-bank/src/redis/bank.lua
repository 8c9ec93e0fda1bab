-- The ledger, as Redis keeps it: what `ledger.rs` says in words holds here too, step by step, and a
-- test compares their answers. One call is one exchange, and Redis runs nothing in between.
--
-- KEYS[1]  submeter:{FLEET}, a hash: run, replid, past (the previous run), ttl, seen, asked (when an
--          exchange last saw it), followed (whether a replica ever followed), now, learns_until,
--          leases, terms (how often limits were set). All other keys begin with it, so that its hash
--          tag keeps them on one node of a cluster:
--   :pools          budget -> the limit less floors, the cap (-1 for none), the sums of the counted
--                   and wished amounts, the floors
--   :scarce         the budgets of which more is wished than there is
--   :ends           holder by the time at which its leases end
--   :holder:ID      '' -> the last sequence, number of leases, terms, base and answer; budget -> the
--                   counted and wished amounts, and since when
--   :wishes:BUDGET  holder by its wish, in the order in which ties are served
--   :name:MEMBER    the holders of one name
--
-- ARGV[1]  'exchange': ID, name, sequence, ttl, the run that last answered the caller or '', the
--          base, the number of budgets, then for each budget, ancestors first: budget, has, wants, and
--          the index of the nearest ancestor in this list or 0.
--          The base is the sequence of an answer that the caller has, or ''. With a base, only budgets
--          that have changed since are listed: an unlisted budget has and wants the same as before, and
--          got everything that it wanted; a returned budget has '' for has. Everything below a listed
--          budget that differs is listed. So are the ancestors of listed budgets; those that do not
--          differ have '=' for has and the amount lent for wants
--          'limit': budget, limit less floors or '', floors or '', cap or '', 'new' unless it replaces
--          the current limit
--          'limits'
--          'lent': ttl, budget
--
-- Times are microseconds. Amounts are below 2^53, where numbers are exact integers.

local root = KEYS[1]
local POOLS, ENDS, SCARCE = root .. ':pools', root .. ':ends', root .. ':scarce'
local HOLDER, WISHES, NAME = root .. ':holder:', root .. ':wishes:', root .. ':name:'
local LEASES_MAX = 1048576
-- If there are more, exchanges do not check which of them a holder has.
local SCARCE_MAX = 256
-- Maximum number of arguments in a call: Lua has a bounded stack.
local MANY = 2000

local pools = {}

-- Whether a holder that got everything it wanted may get less although no limit was set: the more
-- others wish, the smaller its part. What it has does not depend on others while their wishes fit, nor
-- does what a cap leaves to it: others are lent only what it does not have.
local function is_scarce(pool)
  return pool[4] > pool[1]
end

local function read_pool(kept)
  local pool = { struct.unpack('<ddddd', kept) }
  pool.was_scarce = is_scarce(pool)
  return pool
end

local function pool_of(budget)
  local pool = pools[budget]
  if pool == nil then
    local kept = redis.call('HGET', POOLS, budget)
    pool = kept and read_pool(kept)
    pools[budget] = pool
  end
  return pool
end

-- Returns fields of a hash, by name.
local function fields_of(key, names)
  local found = {}
  for first = 1, #names, MANY do
    local last = math.min(first + MANY - 1, #names)
    local kept = redis.call('HMGET', key, unpack(names, first, last))
    for at = first, last do
      found[names[at]] = kept[at - first + 1] or nil
    end
  end
  return found
end

local function read_pools(budgets)
  for budget, kept in pairs(fields_of(POOLS, budgets)) do
    -- Pools in which leases of others have just ended are newer here.
    if pools[budget] == nil then
      pools[budget] = read_pool(kept)
    end
  end
end

local function write(key, fields)
  for first = 1, #fields, MANY do
    redis.call('HSET', key, unpack(fields, first, math.min(first + MANY - 1, #fields)))
  end
end

local function write_pools()
  local fields = {}
  for budget, pool in pairs(pools) do
    if pool and pool.changed then
      fields[#fields + 1] = budget
      fields[#fields + 1] = struct.pack('<ddddd', unpack(pool, 1, 5))
      local scarce = is_scarce(pool)
      if scarce ~= pool.was_scarce then
        redis.call(scarce and 'SADD' or 'SREM', SCARCE, budget)
      end
    end
  end
  write(POOLS, fields)
end

-- Adds to the sums of a pool.
local function add(pool, counted, wish)
  if counted ~= 0 or wish ~= 0 then
    pool[3], pool[4], pool.changed = pool[3] + counted, pool[4] + wish, true
  end
end

local function shares_of(id)
  local kept = redis.call('HGETALL', HOLDER .. id)
  local shares = {}
  for at = 1, #kept, 2 do
    shares[kept[at]] = kept[at + 1]
  end
  return shares
end

-- Removes a holder's shares, and returns how many leases it occupied.
local function forget(id)
  local occupied = 0
  for budget, share in pairs(shares_of(id)) do
    if budget == '' then
      occupied = struct.unpack('<d', string.sub(share, 17, 24))
    else
      local counted, wish = struct.unpack('<dd', share)
      local pool = pool_of(budget)
      if pool then
        add(pool, -counted, -wish)
      end
      redis.call('ZREM', WISHES .. budget, id)
    end
  end
  redis.call('DEL', HOLDER .. id)
  redis.call('ZREM', ENDS, id)
  redis.call('SREM', NAME .. string.match(id, '^(.-)%z'), id)
  return occupied
end

-- Lets time pass, and ends leases that were not renewed. Returns nothing if Redis was restarted, or
-- another server has taken its place, and there are no limits. `met` is the run that last answered the
-- caller of an exchange.
local function advance(ttl, met)
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local replication = redis.call('INFO', 'replication')
  -- It differs on a server that has followed a primary meanwhile.
  local replid = string.match(replication, 'master_replid:(%x+)') or ''
  local kept = redis.call('HMGET', root, 'run', 'ttl', 'seen', 'now', 'learns_until', 'leases',
    'replid', 'past', 'asked', 'followed', 'terms')
  local state = {
    run = run, ttl = tonumber(kept[2] or ttl), now = tonumber(kept[4] or 0),
    learns_until = tonumber(kept[5] or 0), leases = tonumber(kept[6] or 0),
    terms = tonumber(kept[11] or 0),
  }
  local past, asked = kept[8], tonumber(kept[9] or clock)
  local followed = kept[10] == '1' or not string.find(replication, 'connected_slaves:0', 1, true)
  if kept[1] ~= run or kept[7] ~= replid then
    -- What it has persisted may be older than what it has lent.
    if redis.call('HLEN', POOLS) == 0 then
      return nil
    end
    for _, id in ipairs(redis.call('ZRANGE', ENDS, 0, -1)) do
      forget(id)
    end
    for _, budget in ipairs(redis.call('HKEYS', POOLS)) do
      local pool = pool_of(budget)
      pool[3], pool[4], pool.changed = 0, 0, true
      redis.call('DEL', WISHES .. budget)
    end
    -- For the longest lease that may be alive; if it was already learning, the ttl alone does not
    -- tell.
    state.learns_until = math.max(state.learns_until, state.now + math.max(state.ttl, ttl))
    state.ttl, state.leases = ttl, 0
    past = kept[1] or ''
    redis.call('HSET', root, 'run', run, 'replid', replid, 'past', past, 'ttl', ttl)
  else
    -- A clock jump must not end leases that members still use.
    local passed = math.max(clock - tonumber(kept[3]), 0)
    state.now = state.now + math.min(passed, state.ttl / 10)
  end
  if met then
    -- Another server, which knew nothing of this one, may have lent meanwhile: a member has met it, or
    -- all members were away for longer than live members wait. A server that never had a replica was
    -- not replaced by one.
    local elsewhere = met ~= '' and met ~= run and met ~= past
    local silent = followed and clock - asked > state.ttl / 2
    if elsewhere or silent then
      state.learns_until = math.max(state.learns_until, state.now + state.ttl)
    end
    asked = clock
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ENDS, '-inf', state.now)) do
    state.leases = state.leases - forget(id)
  end
  redis.call('HSET', root, 'seen', string.format('%.0f', clock),
    'asked', string.format('%.0f', asked), 'followed', followed and '1' or '0',
    'now', string.format('%.0f', state.now),
    'learns_until', string.format('%.0f', state.learns_until), 'leases', state.leases)
  return state
end

-- Returns the holder's part by max-min fairness.
local function fair(pool, budget, id, wish)
  if pool[4] <= pool[1] then
    return wish
  end
  local wishes = redis.call('ZRANGE', WISHES .. budget, 0, -1, 'WITHSCORES')
  local rest, waiting, part, sum = pool[1], #wishes / 2, nil, 0
  for at = 1, #wishes, 2 do
    local other = tonumber(wishes[at + 1])
    if part == nil then
      local most = math.min(other, math.ceil(rest / waiting))
      if wishes[at] == id then
        part = most
      end
      rest, waiting = rest - most, waiting - 1
    end
    sum = sum + other
  end
  -- Sums beyond 2^53 are rounded, so they are computed again.
  if sum ~= pool[4] then
    pool[4], pool.changed = sum, true
  end
  return part
end

-- Returns how much of the cap of the holder's name its other holders leave.
local function cap_of(pool, budget, id, name)
  if pool[2] < 0 then
    return math.huge
  end
  local left = pool[2]
  for _, other in ipairs(redis.call('SMEMBERS', NAME .. name)) do
    local share = other ~= id and redis.call('HGET', HOLDER .. other, budget)
    if share then
      left = math.max(left - struct.unpack('<d', share), 0)
    end
  end
  return left
end

local function lend(budget, id, name, has, wants, above, learns, share, now)
  local pool = pool_of(budget)
  local counted_before, wish_before, since = 0, 0, now
  if share then
    counted_before, wish_before, since = struct.unpack('<ddd', share)
  end
  add(pool, -counted_before, -wish_before)
  local cap = cap_of(pool, budget, id, name)
  local wish = math.min(wants, above, cap)
  if not share or wish ~= wish_before then
    redis.call('ZADD', WISHES .. budget, wish, id)
  end
  add(pool, 0, wish)
  local room = math.max(pool[1] - pool[3], 0)
  -- After a limit was lowered, a member keeps what it has up to its part.
  local keeps = math.min(has, counted_before)
  local amount = math.min(fair(pool, budget, id, wish), math.max(room, keeps))
  if learns then
    amount = math.min(amount, has)
  end
  local counted = math.max(amount, math.min(has, math.max(math.min(room, cap), counted_before)))
  add(pool, counted, 0)
  if share and counted == counted_before and wish == wish_before then
    return amount, nil
  end
  return amount, struct.pack('<ddd', counted, wish, since)
end

-- Rebuilds the last answer from what is kept of it.
local function answer_in(last, run)
  local answer = { 'lent', run, (string.match(string.sub(last, 33, 48), '%x*')) }
  for at = 49, #last, 8 do
    answer[#answer + 1] = struct.unpack('<d', string.sub(last, at, at + 7))
  end
  return answer
end

-- Whether a holder that lists only differences from `base` gets the same as if it listed everything:
-- the answer that it has is the last one, and no budget that it does not list has become scarce.
local function may_list_less(id, base, last, terms, learns, budgets)
  if learns or not last or string.sub(last, 1, 16) ~= base then
    return false
  end
  if struct.unpack('<d', string.sub(last, 25, 32)) ~= terms then
    return false
  end
  local few = redis.call('SCARD', SCARCE)
  if few == 0 then
    return true
  elseif few > SCARCE_MAX then
    return false
  end
  local listed = {}
  for at, budget in ipairs(budgets) do
    -- Budgets below the others are not listed, and would get less if those did.
    listed[budget] = ARGV[6 + at * 4] ~= '='
  end
  for budget in pairs(fields_of(HOLDER .. id, redis.call('SMEMBERS', SCARCE))) do
    if not listed[budget] then
      return false
    end
  end
  return true
end

local function exchange()
  local id, name, sequence, ttl, base = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[7]
  local state = advance(ttl, ARGV[6])
  if not state then
    return { 'limits' }
  end
  if state.ttl ~= ttl then
    return { 'ttl', state.ttl }
  end
  local last, occupied = redis.call('HGET', HOLDER .. id, ''), 0
  if last then
    local newest = string.sub(last, 1, 16)
    if sequence == newest then
      return answer_in(last, state.run)
    elseif sequence < newest then
      return { 'old', newest }
    end
    occupied = struct.unpack('<d', string.sub(last, 17, 24))
  end
  local listed = (#ARGV - 8) / 4
  local budgets = {}
  for at = 1, listed do
    budgets[at] = ARGV[5 + at * 4]
  end
  local learns = state.now < state.learns_until
  if base ~= '' and not may_list_less(id, base, last, state.terms, learns, budgets) then
    return { 'whole' }
  end
  local others, occupies = state.leases - occupied, math.max(tonumber(ARGV[8]), 1)
  if others + occupies > LEASES_MAX then
    return { 'full', others }
  end

  read_pools(budgets)
  local shares = base == '' and shares_of(id) or fields_of(HOLDER .. id, budgets)
  local answer, changed = { 'lent', state.run, base, learns and 1 or 0 }, {}
  local function give_back(budget, share)
    local counted, wish = struct.unpack('<dd', share)
    add(pool_of(budget), -counted, -wish)
    redis.call('ZREM', WISHES .. budget, id)
    redis.call('HDEL', HOLDER .. id, budget)
  end
  for at = 1, listed do
    local budget, has, wants, above =
      budgets[at], ARGV[6 + at * 4], tonumber(ARGV[7 + at * 4]), tonumber(ARGV[8 + at * 4])
    local share, amount = shares[budget], 0
    shares[budget] = nil
    if has == '' then
      if share then
        give_back(budget, share)
      end
    elseif has == '=' then
      amount = wants
    elseif pools[budget] then
      -- Ancestors without a limit limit nothing.
      while above > 0 and not pools[budgets[above]] do
        above = tonumber(ARGV[8 + above * 4])
      end
      local most = above > 0 and answer[4 + above] or math.huge
      amount, share = lend(budget, id, name, tonumber(has), wants, most, learns, share, state.now)
      if share then
        changed[#changed + 1] = budget
        changed[#changed + 1] = share
      end
    end
    answer[4 + at] = amount
  end
  if base == '' then
    -- Budgets that are no longer listed are returned.
    for budget, share in pairs(shares) do
      if budget ~= '' then
        give_back(budget, share)
      end
    end
  end

  local kept = { sequence, struct.pack('<dd', occupies, state.terms), string.format('%16s', base) }
  for at = 4, #answer do
    kept[at] = struct.pack('<d', answer[at])
  end
  changed[#changed + 1] = ''
  changed[#changed + 1] = table.concat(kept)
  write(HOLDER .. id, changed)
  redis.call('ZADD', ENDS, string.format('%.0f', state.now + ttl), id)
  if not last then
    redis.call('SADD', NAME .. name, id)
  end
  redis.call('HSET', root, 'leases', string.format('%.0f', others + occupies))
  return answer
end

local function limit()
  local budget = ARGV[2]
  local pool = pool_of(budget)
  if pool and ARGV[6] == 'new' then
    return { 'set' }
  end
  pool = pool or { 0, -1, 0, 0, 0, was_scarce = false }
  if ARGV[3] ~= '' then
    pool[1], pool[5] = tonumber(ARGV[3]), tonumber(ARGV[4])
  end
  pool[2] = tonumber(ARGV[5] ~= '' and ARGV[5] or -1)
  pool.changed = true
  pools[budget] = pool
  redis.call('HINCRBY', root, 'terms', 1)
  return { 'set' }
end

local function limits()
  local answer = { 'limits' }
  for _, budget in ipairs(redis.call('HKEYS', POOLS)) do
    local pool = pool_of(budget)
    answer[#answer + 1] = { budget, pool[1], pool[5], pool[2] }
  end
  return answer
end

local function lent()
  local state = advance(tonumber(ARGV[2]))
  local budget, holders = ARGV[3], { 'holders' }
  if state then
    for _, id in ipairs(redis.call('ZRANGE', WISHES .. budget, 0, -1)) do
      local counted, wish, since = struct.unpack('<ddd', redis.call('HGET', HOLDER .. id, budget))
      local ends = tonumber(redis.call('ZSCORE', ENDS, id)) - state.now
      holders[#holders + 1] = { id, counted, wish, state.now - since, ends }
    end
  end
  return holders
end

-- Without limits it is a restarted server that has not lent anything yet.
local function learns()
  local state = advance(tonumber(ARGV[2]))
  return { 'learns', (not state or state.now < state.learns_until) and 1 or 0 }
end

local verbs = { exchange = exchange, limit = limit, limits = limits, lent = lent, learns = learns }
local answer = verbs[ARGV[1]]()
write_pools()
return answer
