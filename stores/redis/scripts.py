"""What the server does for us, each in one step that nobody comes between: scripts in Lua.

A script is all or nothing only in that nothing else runs meanwhile and that its writes reach the
append-only file together. What fails in its middle is not taken back, so each of them first reads
and decides, and from its first write on does nothing that could fail.

Every script is given the prefix of our keys, the name of the data it was written for, the holder of
the lock when there must be one, and what it is to do, packed. The keys, behind the prefix::

    meta           hash    version, id (of the data), saves (how many there were), payers
    lock           hash    owner, until (ms, the server's clock)
    ids            hash    key of a conversation -> its id
    keys           zset    keys of conversations, in order
    unfinished     zset    those of them that have something to do
    s:<id>         hash    one conversation: what `rows.take_apart` gives, and its key
    r:<id>         hash    seq -> message
    b:<id>         hash    digest -> long text
    seen:<id>      list    ids seen
    aside          hash    id of what was set aside -> the key it had
    notes          hash    name -> value; note_names: zset of the names
    blob:<blob>    hash    type, data
    users:<blob>   set     who uses it: a key, or a key, NUL and the id of what was set aside
    uses:<user>    hash    blob -> when it was put; users: zset of the keys that use any
    usage          hash    execution and call -> what it used; usage_at: zset, time before the name
    payers         hash    number -> key of the conversation; payer: zset of key, NUL and number
"""

from __future__ import annotations

from hashlib import sha1
from typing import Final

import msgspec


class Script(msgspec.Struct, frozen=True):
    """:param writes: the lock is looked at, and a save is counted"""

    text: str
    sha: str
    writes: bool


_LIBRARY: Final = r"""
local P, call = ARGV[1], redis.call

-- What is said in "3-12,14-20", as pairs of numbers, and how many numbers that are.
local function ranges(text)
  local found, total = {}, 0
  for first, last in string.gmatch(text or '', '(%d+)%-(%d+)') do
    first, last = tonumber(first), tonumber(last)
    found[#found + 1] = {first, last}
    total = total + math.max(0, last - first + 1)
  end
  return found, total
end

-- The fields of a hash of messages that are in the ranges. However wide they are, it is no more
-- work than there are messages.
local function inside(name, text)
  local wanted, total = ranges(text)
  local fields = {}
  if total == 0 then return fields end
  if total > call('HLEN', name) then
    for _, field in ipairs(call('HKEYS', name)) do
      local seq = tonumber(field) or 0
      for _, range in ipairs(wanted) do
        if seq >= range[1] and seq <= range[2] then fields[#fields + 1] = field break end
      end
    end
    return fields
  end
  for _, range in ipairs(wanted) do
    for seq = range[1], range[2] do
      local field = string.format('%.0f', seq)
      if call('HEXISTS', name, field) == 1 then fields[#fields + 1] = field end
    end
  end
  return fields
end

-- Lua hands over no more than some thousand arguments at once.
local function chunks(list, size)
  local at = 1
  return function()
    if at > #list then return nil end
    local from = at
    at = at + size
    return from, math.min(at - 1, #list)
  end
end

local function delete_fields(name, fields)
  for from, upto in chunks(fields, 4000) do call('HDEL', name, unpack(fields, from, upto)) end
end

local function set_fields(name, pairs_)
  for from, upto in chunks(pairs_, 4000) do call('HSET', name, unpack(pairs_, from, upto)) end
end

-- Does to each value of a hash what `see` does, until it says that this is enough.
local function each_value(name, fields, see)
  for from, upto in chunks(fields, 500) do
    local values = call('HMGET', name, unpack(fields, from, upto))
    for place, value in ipairs(values) do
      if value and see(value, fields[from + place - 1]) then return true end
    end
  end
  return false
end

local function index(name, member, present)
  if present then call('ZADD', P .. name, 0, member) else call('ZREM', P .. name, member) end
end

local function drop(id)
  call('UNLINK', P .. 's:' .. id, P .. 'r:' .. id, P .. 'b:' .. id, P .. 'seen:' .. id)
end

local function free(key)
  call('HDEL', P .. 'ids', key)
  index('keys', key, false)
  index('unfinished', key, false)
end

-- Blobs.

local function end_use(user, blob)
  call('HDEL', P .. 'uses:' .. user, blob)
  call('SREM', P .. 'users:' .. blob, user)
  if call('SCARD', P .. 'users:' .. blob) == 0 then call('UNLINK', P .. 'blob:' .. blob) end
  if call('EXISTS', P .. 'uses:' .. user) == 0 then index('users', user, false) end
end

local function end_all(user)
  for _, blob in ipairs(call('HKEYS', P .. 'uses:' .. user)) do end_use(user, blob) end
end

local function copy_uses(old, new)
  local uses = call('HGETALL', P .. 'uses:' .. old)
  for at = 1, #uses, 2 do
    call('HSET', P .. 'uses:' .. new, uses[at], uses[at + 1])
    call('SADD', P .. 'users:' .. uses[at], new)
  end
  if #uses > 0 and not string.find(new, '\0', 1, true) then index('users', new, true) end
end

local function set_aside(key, now)
  local id = call('HGET', P .. 'ids', key)
  if not id then return end
  call('HSET', P .. 's:' .. id, 'aside', now)
  call('HSET', P .. 'aside', id, key)
  free(key)
  copy_uses(key, key .. '\0' .. id)
end

-- In a text that a person wrote, the quotes would be escaped.
local function collect(text, named)
  if not string.find(text, '"sha256:', 1, true) then return end
  for blob in string.gmatch(text, '"(sha256:%x+)"') do named[blob] = true end
end

-- Keys in order, that are `old` or inside of it. "0" is the character after "/".
local function within(name, old)
  local found = call('ZRANGEBYLEX', P .. name, '[' .. old .. '/', '(' .. old .. '0')
  if call('ZSCORE', P .. name, old) then table.insert(found, 1, old) end
  return found
end

-- Whether a person's id, in quotes, is in what is known about messages, or waits to be answered.
local function has_spoken(id, name)
  local head = call('HGET', P .. 's:' .. id, 'head')
  if head and string.find(head, name, 1, true) then return true end
  local rows = P .. 'r:' .. id
  return each_value(rows, call('HKEYS', rows), function(row)
    if #row < 8 then return false end
    local about = struct.unpack('>I4', row, 5)
    local at = string.find(row, name, 9, true)
    return at and at + #name <= 9 + about
  end)
end

-- What model calls used: {number of the conversation, time, sender, estimated, all else}.

local function payer(key)
  local found = call('ZRANGEBYLEX', P .. 'payer', '[' .. key .. '\0', '(' .. key .. '\1',
    'LIMIT', 0, 1)
  if found[1] then return string.sub(found[1], #key + 2) end
  local number = string.format('%.0f', call('HINCRBY', P .. 'meta', 'payers', 1))
  index('payer', key .. '\0' .. number, true)
  call('HSET', P .. 'payers', number, key)
  return number
end

local function add_usage(key, name, row)
  row[1] = payer(key)
  call('HSET', P .. 'usage', name, cmsgpack.pack(row))
  index('usage_at', string.rep('0', 15 - #row[2]) .. row[2] .. name, true)
end
"""

_BEGIN: Final = r"""
local meta = call('HMGET', P .. 'meta', 'id', 'saves')
if meta[1] ~= ARGV[2] then return {'gone'} end
"""
_HELD: Final = r"""
if ARGV[3] ~= '' and call('HGET', P .. 'lock', 'owner') ~= ARGV[3] then return {'taken'} end
local function done(...)
  return {'ok', tostring(call('HINCRBY', P .. 'meta', 'saves', 1)), ...}
end
"""
_FREE: Final = r"""
local function done(...) return {'ok', meta[2] or '0', ...} end
"""
_GIVEN: Final = "local a = cmsgpack.unpack(ARGV[4])\n"


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode()).hexdigest(), False)


def _looks(text: str) -> Script:
    return _script(_LIBRARY + _BEGIN + _FREE + _GIVEN + text)


def _writes(text: str) -> Script:
    made = _script(_LIBRARY + _BEGIN + _HELD + _GIVEN + text)
    return msgspec.structs.replace(made, writes=True)


# ---------------------------------------------------------------------- the data, and its lock

BEGIN: Final = _script(r"""
-- The version and the name of what is stored here; made when nothing is, and it may be.
local P, call = ARGV[1], redis.call
local meta = call('HMGET', P .. 'meta', 'version', 'id', 'saves')
if meta[1] or ARGV[2] == '' then return meta end
call('HSET', P .. 'meta', 'version', ARGV[3], 'id', ARGV[2], 'saves', 0)
return {ARGV[3], ARGV[2], '0', 'new'}
""")

_LOCK: Final = r"""
local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local lock = call('HMGET', P .. 'lock', 'owner', 'until')
local left = (tonumber(lock[2]) or 0) - now
"""

# `dead`: an owner that is known to be none any more.
TAKE: Final = _looks(
    _LOCK
    + r"""
if lock[1] and lock[1] ~= a.owner and lock[1] ~= a.dead and left > 0 then
  return done('held', lock[1], tostring(left))
end
call('HSET', P .. 'lock', 'owner', a.owner, 'until', string.format('%.0f', now + a.term))
return done('mine')
"""
)

LET_GO: Final = r"""
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
"""

# ---------------------------------------------------------------------- conversations

LOAD: Final = _looks(r"""
local id = call('HGET', P .. 'ids', a.key)
if not id then return done() end
local found = call('HMGET', P .. 's:' .. id, 'revision', 'next_seq', 'seen', 'seen_then', 'head',
  'crc', 'runs')
local numbers, rows = {}, {}
local wanted, total = ranges(found[7])
-- Many more than there are cannot be meant; what is missing is noticed by whoever asks.
if total <= call('HLEN', P .. 'r:' .. id) + 1000 then
  for _, range in ipairs(wanted) do
    for seq = range[1], range[2] do numbers[#numbers + 1] = string.format('%.0f', seq) end
  end
end
for from, upto in chunks(numbers, 4000) do
  for _, row in ipairs(call('HMGET', P .. 'r:' .. id, unpack(numbers, from, upto))) do
    rows[#rows + 1] = row
  end
end
return done(id, found, call('LRANGE', P .. 'seen:' .. id, 0, -1),
  call('HGETALL', P .. 'b:' .. id), numbers, rows)
""")

# What a save must know of what it replaces, when whoever saves does not.
LOOK: Final = _looks(r"""
local id = call('HGET', P .. 'ids', a.key)
if not id then return done() end
local found = call('HMGET', P .. 's:' .. id, 'revision', 'next_seq', 'seen', 'seen_then')
return done(id, found, call('HKEYS', P .. 'b:' .. id))
""")

REVISION: Final = _looks(r"""
local id = call('HGET', P .. 'ids', a.key)
if not id then return done() end
return done(call('HGET', P .. 's:' .. id, 'revision'))
""")

HEAD: Final = _looks(r"""
local id = call('HGET', P .. 'ids', a.key)
if not id then return done() end
return done(id, call('HMGET', P .. 's:' .. id, 'revision', 'next_seq', 'seen', 'seen_then', 'head',
  'crc'))
""")

# The newest of the rows in the ranges, which come newest first.
NEWEST: Final = _looks(r"""
local name, found, numbers = P .. 'r:' .. a.id, {}, {}
local wanted, total = ranges(a.ranges)
if total > 4 * call('HLEN', name) + 1000 then
  numbers = inside(name, a.ranges)
  table.sort(numbers, function(one, other) return tonumber(one) > tonumber(other) end)
  for place, field in ipairs(numbers) do
    if place > a.limit then break end
    found[#found + 1] = field
    found[#found + 1] = call('HGET', name, field)
  end
  return done(found)
end
for _, range in ipairs(wanted) do
  for seq = range[2], range[1], -1 do
    if #found >= 2 * a.limit then return done(found) end
    local field = string.format('%.0f', seq)
    local row = call('HGET', name, field)
    if row then
      found[#found + 1] = field
      found[#found + 1] = row
    end
  end
end
return done(found)
""")

_WRITE: Final = r"""
-- A conversation's new value: what is always written, and what is new of the rest.
local function write(id, w)
  local rows, bodies, seen = P .. 'r:' .. id, P .. 'b:' .. id, P .. 'seen:' .. id
  set_fields(P .. 's:' .. id, w.fields)
  delete_fields(rows, inside(rows, w.erase))
  set_fields(rows, w.rows)
  set_fields(bodies, w.bodies)
  delete_fields(bodies, w.done_with)
  if w.seen_all then call('UNLINK', seen) end
  for from, upto in chunks(w.seen, 4000) do call('RPUSH', seen, unpack(w.seen, from, upto)) end
  if #w.seen > 0 then call('LTRIM', seen, -w.seen_count, -1) end
end
"""

SAVE: Final = _writes(
    _WRITE
    + r"""
local id = call('HGET', P .. 'ids', a.key)
if a.replaces == '' then
  if id then return {'stale', meta[2]} end
  id = a.id
elseif id ~= a.id then
  return {'stale', meta[2]}
else
  local found = call('HMGET', P .. 's:' .. id, 'revision', 'crc')
  if found[1] ~= a.replaces or (a.crc ~= '' and found[2] ~= a.crc) then
    return {'stale', meta[2]}
  end
end
local rows = P .. 'r:' .. id

-- The blobs that what goes has named: looked for before it goes.
local uses, going = {}, {}
if a.named then
  uses = call('HGETALL', P .. 'uses:' .. a.key)
  if #uses > 0 then
    local function see(text) collect(text, going) end
    see(call('HGET', P .. 's:' .. id, 'head') or '')
    for _, body in ipairs(call('HVALS', P .. 'b:' .. id)) do see(body) end
    each_value(rows, inside(rows, a.write.erase), see)
    local fields = {}
    for at = 1, #a.rewritten, 2 do fields[#fields + 1] = a.rewritten[at] end
    each_value(rows, fields, see)
  end
end

write(id, a.write)
for at = 1, #a.rewritten, 2 do
  if call('HEXISTS', rows, a.rewritten[at]) == 1 then
    call('HSET', rows, a.rewritten[at], a.rewritten[at + 1])
  end
end
if a.replaces == '' then
  call('HSET', P .. 'ids', a.key, id)
  call('HSET', P .. 's:' .. id, 'key', a.key)
  index('keys', a.key, true)
end
if a.turned then index('unfinished', a.key, a.unfinished) end

for at = 1, #a.spent, 2 do
  local name, row = a.spent[at], a.spent[at + 1]
  local there = call('HGET', P .. 'usage', name)
  if not there then
    add_usage(a.key, name, row)
  else
    there = cmsgpack.unpack(there)
    -- What was said of a call stays: an estimate that comes late changes nothing.
    if there[4] or not row[4] then
      row[1], row[2], row[3] = there[1], there[2], there[3]
      call('HSET', P .. 'usage', name, cmsgpack.pack(row))
    end
  end
end

if #uses > 0 then
  local named = {}
  for _, blob in ipairs(a.named) do named[blob] = true end
  for at = 1, #uses, 2 do
    local blob, put = uses[at], tonumber(uses[at + 1])
    if not named[blob] and (going[blob] or put + a.grace < a.now) then
      local quoted = '"' .. blob .. '"'
      -- Rows that left the window are history still.
      local kept = each_value(rows, call('HKEYS', rows), function(row)
        return string.find(row, quoted, 1, true)
      end)
      if not kept then end_use(a.key, blob) end
    end
  end
end
return done()
"""
)

CLEAR: Final = _writes(r"""
local id = call('HGET', P .. 'ids', a.key)
if id then
  drop(id)
  free(a.key)
end
end_all(a.key)
return done()
""")

REMOVE: Final = _writes(r"""
local id = call('HGET', P .. 'ids', a.key)
if not id or call('HGET', P .. 's:' .. id, 'revision') ~= a.replaces then
  return {'stale', meta[2]}
end
drop(id)
free(a.key)
end_all(a.key)
return done()
""")

SET_ASIDE: Final = _writes(r"""
set_aside(a.key, a.now)
return done()
""")

UNFINISHED: Final = _looks(r"""
return done(call('ZRANGEBYLEX', P .. 'unfinished', a.start, '+', 'LIMIT', 0, a.limit))
""")

SUMMARIES: Final = _looks(r"""
local found = {}
for _, key in ipairs(call('ZRANGEBYLEX', P .. 'keys', a.start, a.stop, 'LIMIT', 0, a.limit)) do
  local id = call('HGET', P .. 'ids', key) or ''
  local row = call('HMGET', P .. 's:' .. id, 'unfinished', 'updated_at', 'outside')
  local rows = P .. 'r:' .. id
  found[#found + 1] = {key, call('HLEN', rows) - #inside(rows, row[3] or ''), row[1] or '0',
    row[2] or '0'}
end
return done(found)
""")

# ---------------------------------------------------------------------- a chat that moves

INSIDE: Final = _looks(r"""
return done(within('keys', a.old), within('users', a.old))
""")

ROWS: Final = _looks(r"""
return done(call('HGETALL', P .. 'r:' .. a.id))
""")

# What is to be done was worked out from what was read before; nothing of that may have changed.
MOVE: Final = _writes(
    _WRITE
    + r"""
local function same(found, wanted)
  if #found ~= #wanted then return false end
  for at, value in ipairs(found) do if value ~= wanted[at] then return false end end
  return true
end
if not (same(within('keys', a.old), a.keys) and same(within('users', a.old), a.users)) then
  return {'stale', meta[2]}
end
for _, seen in ipairs(a.seen) do
  local id = call('HGET', P .. 'ids', seen.key) or ''
  if id ~= seen.id then return {'stale', meta[2]} end
  if id ~= '' then
    local found = call('HMGET', P .. 's:' .. id, 'revision', 'crc')
    if found[1] ~= seen.revision or found[2] ~= seen.crc then return {'stale', meta[2]} end
  end
end

local used = {}
for at, pair in ipairs(a.uses) do used[at] = call('HKEYS', P .. 'uses:' .. pair[1]) end
for _, pair in ipairs(a.uses) do copy_uses(pair[1], pair[2]) end
for _, step in ipairs(a.steps) do
  if step.what == 'aside' then
    set_aside(step.key, a.now)
  elseif step.what == 'drop' then
    local id = call('HGET', P .. 'ids', step.key)
    drop(id)
    free(step.key)
  else
    local id = call('HGET', P .. 'ids', step.key)
    local unfinished = call('ZSCORE', P .. 'unfinished', step.key)
    free(step.key)
    if step.write then
      -- Rows that come from the other are erased like its own.
      set_fields(P .. 'r:' .. id, step.rows)
      write(id, step.write)
    end
    call('HSET', P .. 's:' .. id, 'key', step.new, 'crc', step.crc)
    call('HSET', P .. 'ids', step.new, id)
    index('keys', step.new, true)
    if step.write then unfinished = step.unfinished end
    index('unfinished', step.new, unfinished)
  end
end
for at, pair in ipairs(a.uses) do
  for _, blob in ipairs(used[at]) do end_use(pair[1], blob) end
end

-- Whoever has paid under the old name has paid under the new one.
local paid = call('ZRANGEBYLEX', P .. 'payer', '[' .. a.old .. '\0', '(' .. a.old .. '\1')
for _, member in ipairs(call('ZRANGEBYLEX', P .. 'payer', '[' .. a.old .. '/',
    '(' .. a.old .. '0')) do
  paid[#paid + 1] = member
end
for _, member in ipairs(paid) do index('payer', member, false) end
for _, member in ipairs(paid) do
  local at = string.find(member, '\0', 1, true)
  local number = string.sub(member, at + 1)
  local new = a.new .. string.sub(member, #a.old + 1, at - 1)
  index('payer', new .. '\0' .. number, true)
  call('HSET', P .. 'payers', number, new)
end
return done()
"""
)

# ---------------------------------------------------------------------- forgetting a person

SPOKEN_BY: Final = _looks(r"""
-- So many conversations that about 2,000 messages are looked at: nobody else is served meanwhile.
local found, seen, last = {}, 0, false
for _, key in ipairs(call('ZRANGEBYLEX', P .. 'keys', a.start, '+', 'LIMIT', 0, 200)) do
  if seen > 2000 then break end
  local id = call('HGET', P .. 'ids', key) or ''
  if has_spoken(id, a.name) then found[#found + 1] = key end
  seen = seen + call('HLEN', P .. 'r:' .. id)
  last = key
end
return done(last, found)
""")

_SIZES: Final = r"""
local function lengths(name)
  local sum = 0
  for _, field in ipairs(call('HKEYS', name)) do sum = sum + call('HSTRLEN', name, field) end
  return sum
end

local function size_of(id)
  return lengths(P .. 's:' .. id) + lengths(P .. 'r:' .. id) + lengths(P .. 'b:' .. id)
end

-- Of a blob that others use as well, a share; or nothing.
local function blobs_of(user, shared)
  local sum = 0
  for _, blob in ipairs(call('HKEYS', P .. 'uses:' .. user)) do
    local users = call('SCARD', P .. 'users:' .. blob)
    if users == 1 or (shared and users > 0) then
      sum = sum + call('HSTRLEN', P .. 'blob:' .. blob, 'data') / users
    end
  end
  return sum
end
"""

SIZE: Final = _looks(
    _SIZES
    + r"""
local id = call('HGET', P .. 'ids', a.key)
return done(id and size_of(id) + blobs_of(a.key, false) or 0)
"""
)

# Of about 2,000 messages at once, as when a person is looked for.
SIZES: Final = _looks(
    _SIZES
    + r"""
local sum, seen, last = 0, 0, false
for _, key in ipairs(call('ZRANGEBYLEX', P .. 'keys', a.start, '+', 'LIMIT', 0, 200)) do
  if seen > 2000 then break end
  local id = call('HGET', P .. 'ids', key) or ''
  sum = sum + size_of(id)
  seen = seen + call('HLEN', P .. 'r:' .. id)
  last = key
end
return done(last, sum)
"""
)

SIZE_ASIDE: Final = _looks(
    _SIZES
    + r"""
local key = call('HGET', P .. 'aside', a.id)
return done(key and size_of(a.id) + blobs_of(key .. '\0' .. a.id, true) or 0)
"""
)

BLOB_SIZES: Final = _looks(
    _SIZES
    + r"""
local sum, last = 0, false
for _, user in ipairs(call('ZRANGEBYLEX', P .. 'users', a.start, '+', 'LIMIT', 0, a.limit)) do
  sum = sum + blobs_of(user, true)
  last = user
end
return done(last, sum, call('HLEN', P .. 'usage'))
"""
)

ASIDE: Final = _looks(r"""
return done(call('HKEYS', P .. 'aside'))
""")

CLEAR_ASIDE: Final = _writes(r"""
local key = call('HGET', P .. 'aside', a.id)
if not key then return done(0) end
local at = tonumber(call('HGET', P .. 's:' .. a.id, 'aside')) or 0
if key ~= a.key and at >= a.before and not (a.name ~= '' and has_spoken(a.id, a.name)) then
  return done(0)
end
end_all(key .. '\0' .. a.id)
drop(a.id)
call('HDEL', P .. 'aside', a.id)
return done(1)
""")

# ---------------------------------------------------------------------- notes

NOTE: Final = _looks("return done(call('HGET', P .. 'notes', a.name))")

NOTE_NAMES: Final = _looks(r"""
return done(call('ZRANGEBYLEX', P .. 'note_names', a.start, '+', 'LIMIT', 0, a.limit))
""")

PUT_NOTE: Final = _writes(r"""
if call('HGET', P .. 'notes', a.name) ~= a.was then return {'ok', meta[2], 0} end
if a.value then
  call('HSET', P .. 'notes', a.name, a.value)
else
  call('HDEL', P .. 'notes', a.name)
end
index('note_names', a.name, a.value)
return done(1)
""")

# ---------------------------------------------------------------------- blobs

PUT_BLOB: Final = _writes(r"""
-- The bytes are not packed with the rest: they may be many.
if call('EXISTS', P .. 'blob:' .. a.blob) == 0 then
  call('HSET', P .. 'blob:' .. a.blob, 'type', a.type, 'data', ARGV[5])
end
call('HSET', P .. 'uses:' .. a.key, a.blob, a.now)
call('SADD', P .. 'users:' .. a.blob, a.key)
index('users', a.key, true)
return done()
""")

BLOB: Final = _looks("return done(call('HMGET', P .. 'blob:' .. a.blob, 'type', 'data'))")

# The uses of conversations that are not there.
SWEEP: Final = _writes(r"""
local ended, last = 0, false
for _, user in ipairs(call('ZRANGEBYLEX', P .. 'users', a.start, '+', 'LIMIT', 0, a.limit)) do
  last = user
  if call('HEXISTS', P .. 'ids', user) == 0 then
    local uses = call('HGETALL', P .. 'uses:' .. user)
    for at = 1, #uses, 2 do
      if tonumber(uses[at + 1]) < a.before then
        end_use(user, uses[at])
        ended = ended + 1
      end
    end
  end
end
return done(last, ended)
""")

# ---------------------------------------------------------------------- what calls used

USAGE: Final = _looks(r"""
local members = call('ZRANGEBYLEX', P .. 'usage_at', a.start, a.stop, 'LIMIT', 0, a.limit)
local names, found = {}, {}
for at, member in ipairs(members) do names[at] = string.sub(member, 16) end
if #names == 0 then return done(false, found) end
for at, row in ipairs(call('HMGET', P .. 'usage', unpack(names))) do
  if row then
    local number = cmsgpack.unpack(row)[1]
    found[#found + 1] = {names[at], call('HGET', P .. 'payers', number) or '', row}
  end
end
return done(members[#members], found)
""")

ADD_USAGE: Final = _writes(r"""
for _, each in ipairs(a.rows) do
  if call('HEXISTS', P .. 'usage', each[2]) == 0 then add_usage(each[1], each[2], each[3]) end
end
return done()
""")

FORGET_USAGE: Final = _writes(r"""
local count = 0
for _, name in ipairs(a.names) do
  local row = call('HGET', P .. 'usage', name)
  row = row and cmsgpack.unpack(row)
  if row and row[3] == a.sender then
    row[1], row[3] = '', false
    call('HSET', P .. 'usage', name, cmsgpack.pack(row))
    count = count + 1
  end
end
return done(count)
""")

ERASE_USAGE: Final = _writes(r"""
local members = call('ZRANGEBYLEX', P .. 'usage_at', '-', a.stop, 'LIMIT', 0, a.limit)
for _, member in ipairs(members) do
  call('HDEL', P .. 'usage', string.sub(member, 16))
  index('usage_at', member, false)
end
return done(#members)
""")
