/* What is shown stands in the address after #, so that a link leads to exactly this view and "back" works. */

const torchstoneState = (() => {
  /** @param {string} hash @returns {State} */
  function parse(hash) {
    return Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  }

  /** @param {State} state @returns {string} */
  function write(state) {
    const set = Object.entries(state).filter(([, value]) => value !== "");
    return set.length === 0 ? "" : `#${new URLSearchParams(set)}`;
  }

  /** @type {((state: State) => void)[]} */
  const listeners = [];

  /** The state where the address cannot change, as in a frame of a notebook. @type {string | null} */
  let kept = null;

  function get() {
    return parse(kept ?? location.hash);
  }

  /** Typing changes the address in place; choosing makes a step that "back" undoes. @param {State} changes @param {boolean} [inPlace] */
  function set(changes, inPlace = false) {
    const address = write({ ...get(), ...changes }) || "#";
    if (address === (kept ?? (location.hash || "#"))) return;
    try {
      if (inPlace) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
    } catch {
      kept = address;
    }
    for (const listener of listeners) listener(get());
  }

  /** @param {(state: State) => void} listener */
  function listen(listener) {
    if (listeners.length === 0) {
      const tell = () => { for (const one of listeners) one(get()); };
      addEventListener("popstate", tell);
    }
    listeners.push(listener);
  }

  return { parse, write, get, set, listen };
})();
torchstone.state = torchstoneState;
