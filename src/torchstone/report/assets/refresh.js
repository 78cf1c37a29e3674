/* A page that `torchstone serve` shows loads itself again when its file has changed; anywhere else it asks nobody. */

const torchstoneRefresh = (() => {
  const EVERY_MS = 2000;
  const SELDOM_MS = 60000;

  function start() {
    if (!location.protocol.startsWith("http")) return; // a file, or the frame of a notebook, which may not read cookies
    if (!document.cookie.split("; ").includes("torchstone_live=1")) return;
    let seen = "";
    let wait = EVERY_MS;

    async function look() {
      const answer = await fetch(location.pathname + location.search, { method: "HEAD", cache: "no-store" }).catch(() => null);
      const found = answer?.ok ? answer.headers.get("ETag") ?? "" : "";
      if (seen && found && found !== seen) return location.reload();
      seen = found || seen;
      wait = found ? EVERY_MS : Math.min(2 * wait, SELDOM_MS);
      return setTimeout(look, wait);
    }

    setTimeout(look, 0);
  }

  return { start };
})();
torchstone.refresh = torchstoneRefresh;
