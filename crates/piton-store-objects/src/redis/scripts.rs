//! What the server does in one step. The keys of a store have one hash tag, so a cluster has all of them on one node.
//!
//! - `NAMES`: a sorted set of the names of all objects, which gives lists in order.
//! - `META`: a hash from each name to its version and its size, `17 2048`.
//! - `COUNT`: counts every change, so that no version comes twice.
//! - one string for each object: its bytes.

use std::sync::LazyLock;

use redis::Script;

/// Keys: names, meta, count, object. Arguments: name, bytes. 1 if it was created.
pub(super) static CREATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
         local version = redis.call('INCR', KEYS[3])
         redis.call('SET', KEYS[4], ARGV[2])
         redis.call('HSET', KEYS[2], ARGV[1], version .. ' ' .. #ARGV[2])
         redis.call('ZADD', KEYS[1], 0, ARGV[1])
         return 1",
    )
});

/// Keys: names, meta, count, object. Arguments: name, bytes, version. 1 if it was replaced.
pub(super) static REPLACE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta = redis.call('HGET', KEYS[2], ARGV[1])
         if not meta or string.match(meta, '^%d+') ~= ARGV[3] then return 0 end
         local version = redis.call('INCR', KEYS[3])
         redis.call('SET', KEYS[4], ARGV[2])
         redis.call('HSET', KEYS[2], ARGV[1], version .. ' ' .. #ARGV[2])
         return 1",
    )
});

/// Keys: names, meta, count, object. Arguments: name, version or nothing. 1 if it was deleted.
pub(super) static DELETE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta = redis.call('HGET', KEYS[2], ARGV[1])
         if not meta or (ARGV[2] ~= '' and string.match(meta, '^%d+') ~= ARGV[2]) then return 0 end
         redis.call('DEL', KEYS[4])
         redis.call('HDEL', KEYS[2], ARGV[1])
         redis.call('ZREM', KEYS[1], ARGV[1])
         return 1",
    )
});

/// Keys: names, meta, count, object. Arguments: name, first byte, last byte (from the end if negative), or nothing twice
/// for no bytes. The meta and the bytes; nothing if there is no such object.
pub(super) static GET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta = redis.call('HGET', KEYS[2], ARGV[1])
         if not meta then return false end
         if ARGV[2] == '' then return {meta, ''} end
         return {meta, redis.call('GETRANGE', KEYS[4], ARGV[2], ARGV[3])}",
    )
});

/// Keys: names, meta. Arguments: the prefix of a folder, where to begin, how many at most. Where to go on, or nothing;
/// then in turns a name and its meta, which is empty for a folder.
pub(super) static LIST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local prefix, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
         local found = {''}
         while #found < 2 * most do
           local page = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 100)
           if #page == 0 then return found end
           for _, name in ipairs(page) do
             if string.sub(name, 1, #prefix) ~= prefix then return found end
             from = '(' .. name
             local rest = string.sub(name, #prefix + 1)
             local slash = string.find(rest, '/', 1, true)
             if slash then
               local folder = string.sub(rest, 1, slash - 1)
               table.insert(found, folder)
               table.insert(found, '')
               from = '[' .. prefix .. folder .. '0'
               break
             end
             table.insert(found, rest)
             table.insert(found, redis.call('HGET', KEYS[2], name))
           end
         end
         found[1] = from
         return found",
    )
});
