/* A list that only has elements for the rows in view. */

const torchstoneRows = (() => {
  const MARGIN = 10;
  const TALLEST = 8_000_000; // px; browsers cut elements off somewhere above 10 million

  /**
   * @param {HTMLElement} scroller
   * @param {HTMLElement} body
   * @param {{height: number, draw: (row: number) => HTMLElement}} options
   * @returns {VirtualRows}
   */
  function mount(scroller, body, { height, draw }) {
    let count = 0;
    let waiting = false;
    let painted = ""; // where

    const total = () => Math.min(count * height, TALLEST);
    const ratio = () => (count * height > TALLEST ? (count * height - view()) / Math.max(TALLEST - view(), 1) : 1);
    const view = () => Math.max(scroller.clientHeight - body.offsetTop, height);

    /** @param {boolean} [anew] also where nothing has moved: a row that is replaced under the pointer loses the click */
    function paint(anew = true) {
      waiting = false;
      const top = scroller.scrollTop * ratio();
      const first = Math.max(Math.floor(top / height) - MARGIN, 0);
      const end = Math.min(Math.ceil((top + scroller.clientHeight) / height) + MARGIN, count);
      const shift = scroller.scrollTop - top;
      if (!anew && painted === `${first} ${end} ${shift}`) return;
      painted = `${first} ${end} ${shift}`;
      const made = document.createDocumentFragment();
      for (let row = first; row < end; row += 1) {
        const element = draw(row);
        element.style.transform = `translateY(${row * height + shift}px)`;
        made.append(element);
      }
      body.replaceChildren(made);
    }

    function later() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => paint(false));
    }

    scroller.addEventListener("scroll", later, { passive: true });
    new ResizeObserver(later).observe(scroller);

    return {
      setCount(next) {
        count = next;
        body.style.height = `${total()}px`;
        paint();
      },
      redraw: () => paint(),
      reveal(row) {
        const top = (row * height) / ratio();
        const low = scroller.scrollTop;
        if (top < low) scroller.scrollTop = top;
        else if (top + height > low + view()) scroller.scrollTop = top + height - view();
        paint();
      },
    };
  }

  return { mount };
})();
torchstone.rows = torchstoneRows;
