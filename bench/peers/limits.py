#!/usr/bin/env python3
"""Durability floor of this disk: append+fsync, SQLite WAL commits, PostgreSQL single-row commits.

usage: limits.py [--dir DIR] [--dsn DSN] [--n 500] [--rounds 3]
Variants are interleaved round by round, so ratios inside one run are fair.
"""
import argparse, json, os, shutil, sqlite3, statistics as st, time
from pydoc_data.topics import topics

TEXT = " ".join(" ".join(topics[k].split()) for k in sorted(topics)).encode()
ROW = TEXT[:10_000]


def lat(f, n):
    out = []
    for i in range(n):
        t = time.perf_counter(); f(i); out.append((time.perf_counter() - t) * 1e6)
    return out


def file_append(d, n, size, sync, prealloc=False):
    fd = os.open(os.path.join(d, "append"), os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    buf = TEXT[:size]
    if prealloc:  # write zeros first, so later writes change no metadata
        os.write(fd, b"\0" * size * n); os.fsync(fd); os.lseek(fd, 0, 0)
    def f(i):
        os.write(fd, buf)
        if sync: sync(fd)
    r = lat(f, n); os.close(fd); return r


def rename_file(d, n, size):
    """The classic atomic file save: tmp + fsync + rename + fsync(dir)."""
    dfd = os.open(d, os.O_RDONLY); buf = TEXT[:size]
    def f(i):
        fd = os.open(os.path.join(d, "t"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(fd, buf); os.fsync(fd); os.close(fd)
        os.rename(os.path.join(d, "t"), os.path.join(d, f"s{i}")); os.fsync(dfd)
    r = lat(f, n); os.close(dfd); return r


def sqlite_commit(d, n, sync, journal="WAL"):
    c = sqlite3.connect(os.path.join(d, "l.db"), isolation_level=None)
    c.execute(f"pragma journal_mode={journal}"); c.execute(f"pragma synchronous={sync}")
    c.execute("create table t(id integer primary key, b blob)")
    r = lat(lambda i: c.execute("insert into t(b) values(?)", (ROW,)), n); c.close(); return r


def pg_commit(dsn, n, setting):
    import psycopg
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute(setting); c.execute("drop table if exists l"); c.execute("create table l(id bigserial primary key, b bytea)")
        return lat(lambda i: c.execute("insert into l(b) values(%s)", (ROW,)), n)


def pg_select1(dsn, n):
    import psycopg
    with psycopg.connect(dsn, autocommit=True) as c:
        return lat(lambda i: c.execute("select 1").fetchone(), n)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--dir", default="./scratch"); p.add_argument("--n", type=int, default=500); p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--dsn", default="postgresql://postgres@127.0.0.1:54329/postgres?sslmode=disable")
    p.add_argument("--skip-postgres", action="store_true")
    a = p.parse_args(); n = a.n
    V = {
        "append 4K, no sync": lambda d: file_append(d, n, 4096, None),
        "append 4K + fdatasync": lambda d: file_append(d, n, 4096, os.fdatasync),
        "append 4K + fsync": lambda d: file_append(d, n, 4096, os.fsync),
        "overwrite preallocated 4K + fdatasync": lambda d: file_append(d, n, 4096, os.fdatasync, True),
        "append 64K + fdatasync": lambda d: file_append(d, n, 65536, os.fdatasync),
        "tmp+fsync+rename+fsync(dir) 10K": lambda d: rename_file(d, n, 10_000),
        "sqlite WAL NORMAL 10K row": lambda d: sqlite_commit(d, n, "NORMAL"),
        "sqlite WAL FULL 10K row": lambda d: sqlite_commit(d, n, "FULL"),
        "sqlite DELETE FULL 10K row": lambda d: sqlite_commit(d, n, "FULL", "DELETE"),
        "postgres sync commit 10K row": lambda d: pg_commit(a.dsn, n, "set synchronous_commit=on"),
        "postgres async commit 10K row": lambda d: pg_commit(a.dsn, n, "set synchronous_commit=off"),
        "postgres select 1 (round trip)": lambda d: pg_select1(a.dsn, n),
    }
    if a.skip_postgres: V = {k: f for k, f in V.items() if not k.startswith("postgres")}
    res = {k: [] for k in V}
    for _ in range(a.rounds):
        for k, f in V.items():
            d = os.path.join(a.dir, "limits"); shutil.rmtree(d, ignore_errors=True); os.makedirs(d)
            res[k].append(f(d))
    for k, rs in res.items():
        allx = sorted(x for r in rs for x in r)
        meds = [st.median(r) for r in rs]
        print(json.dumps({"what": k, "med_us": round(st.median(allx), 1), "p99_us": round(allx[int(len(allx) * .99)], 1),
                          "round_meds": [round(m, 1) for m in meds]}))
