/* The index of `torchstone serve`: search in the list of reports. */

(() => {
  torchstone.theme.start();
  torchstone.refresh.start();
  const { button } = torchstone.elements;
  document.getElementById("tools")?.append(button("Switch between light and dark", "moon", torchstone.theme.toggle));
  const box = /** @type {HTMLInputElement | null} */ (document.getElementById("find"));
  const count = document.getElementById("count");
  const rows = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".report-row"))];

  function filter() {
    const words = (box?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      const text = (row.textContent ?? "").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      left += row.hidden ? 0 : 1;
    }
    if (count) count.textContent = words.length ? `${left} of ${rows.length}` : "";
  }

  box?.addEventListener("input", filter);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === box) return;
    event.preventDefault();
    box?.focus();
  });
})();
