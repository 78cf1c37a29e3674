/* Light and dark: the system decides until the reader does. */

const torchstoneTheme = (() => {
  const KEY = "torchstone-theme";

  function system() {
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  /** Storage can be refused for a file; then the choice lasts as long as the page. @param {string} [choice] */
  function remembered(choice) {
    try {
      if (choice) localStorage.setItem(KEY, choice);
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function current() {
    return document.documentElement.dataset.theme ?? system();
  }

  /** @type {(() => void)[]} */
  const listeners = [];

  function tell() {
    for (const listener of listeners) listener();
  }

  function toggle() {
    const next = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    remembered(next);
    tell();
  }

  function start() {
    const choice = remembered();
    if (choice === "dark" || choice === "light") document.documentElement.dataset.theme = choice;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  }

  /** @param {() => void} listener */
  function listen(listener) {
    listeners.push(listener);
  }

  /** The value of a colour variable, for libraries that cannot read them. @param {string} name */
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  return { start, toggle, current, listen, colour };
})();
torchstone.theme = torchstoneTheme;
