//! The Redis store before the suite that judges every store.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_redis::Redis;
use leasehold_servers::redis as servers;
use leasehold_servers::{Mode, Proxy};

fn main() -> ExitCode {
    let part = victim(|url| Ok(Arc::new(Redis::from_url(url)?)));
    part.unwrap_or_else(|| run("redis", Single::new))
}

const LEASE: Duration = Duration::from_millis(500);

/// A server of its own for every trial, behind a proxy that can cut it off.
struct Single {
    server: Mutex<servers::Redis>,
    proxy: Proxy,
}

impl std::fmt::Debug for Single {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Single")
    }
}

/// Counts what is stored about a lock, with nothing of the store in between but its format.
const COUNT: &str = r"
local holders, units, waiters, residue = 0, 0, 0, 0
local function count(held, wanted)
  if held > 0 then holders, units = holders + 1, units + held end
  if held < wanted then waiters = waiters + 1 end
end
for _, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' then residue = residue + 1 end
  if kind == 'zset' then
    for _, member in ipairs(redis.call('ZRANGEBYLEX', key, '[r', '(s')) do
      local _, _, held, wanted = cmsgpack.unpack(string.sub(member, 18))
      count(held, wanted)
    end
  elseif kind == 'string' then
    local all = { cmsgpack.unpack(redis.call('GET', key)) }
    if all[7] then count(all[10], all[11]) end
  end
end
return { holders, string.format('%d', units), waiters, residue }";

impl Single {
    fn new() -> Result<Self> {
        let server = servers::Redis::start();
        let proxy = Proxy::to(server.port());
        Ok(Self { server: Mutex::new(server), proxy })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.proxy.port())
    }

    fn read(&self, key: &Key) -> redis::RedisResult<RawState> {
        let url = self.server.lock().unwrap_or_else(PoisonError::into_inner).url();
        let mut connection = redis::Client::open(url)?.get_connection()?;
        // Every refusal is counted: a trial has its server for itself.
        let marks: Vec<Vec<u8>> = redis::cmd("KEYS").arg("leasehold.refused:*").query(&mut connection)?;
        let name = key.as_str();
        let locks = [format!("leasehold{{:{name}}}"), format!("leasehold:{name}")];
        let (holders, units, waiters, residue): (usize, u64, usize, usize) =
            redis::cmd("EVAL").arg(COUNT).arg(2).arg(&locks).query(&mut connection)?;
        Ok(RawState { holders, units, waiters, residue: residue + marks.len() })
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the test's own look at the server failed").because(error)
}

impl Fixture for Single {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(Redis::from_url(&self.url())?) as _) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move { self.read(key).map_err(failed) })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn kill_holder<'a>(&'a self, key: &'a Key) -> Hook<'a> {
        Hook::Does(Box::pin(async move { kill_one_that_holds(&self.url(), key, LEASE).await }))
    }

    fn cut(&self) -> Hook<'_> {
        Hook::Does(Box::pin(async {
            self.proxy.set(Mode::Hold);
            Ok(())
        }))
    }

    fn heal(&self) -> Hook<'_> {
        Hook::Does(Box::pin(async {
            self.proxy.set(Mode::Pass);
            Ok(())
        }))
    }

    fn restart_server(&self) -> Hook<'_> {
        Hook::Does(Box::pin(async {
            self.server.lock().unwrap_or_else(PoisonError::into_inner).restart();
            Ok(())
        }))
    }
}
