"use strict";
(() => {
  const root = document.documentElement, theme = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();

  /* A household is found in its crowd: the panel is shown, its curve and its name are marked. */
  const find = document.getElementById("find"), seen = document.getElementById("seen"), more = document.getElementById("more");
  if (!find) return;
  const panels = [...document.querySelectorAll(".panel")];
  const everyone = [...document.querySelectorAll(".names li")];
  const all = () => panels.forEach((panel) => panel.classList.remove("later"));
  const search = () => {
    const text = find.value.trim().toLowerCase();
    for (const node of document.querySelectorAll(".marked")) node.classList.remove("marked");
    const hits = text ? everyone.filter((li) => li.dataset.name.toLowerCase().includes(text)) : [];
    const exact = hits.filter((li) => li.dataset.name.toLowerCase() === text), shown = exact.length ? exact : hits;
    const crowds = new Set(shown.map((li) => li.closest(".panel")));
    for (const panel of panels) panel.hidden = Boolean(text) && !crowds.has(panel);
    if (text) all();
    for (const li of shown) {
      li.classList.add("marked");
      const panel = li.closest(".panel");
      for (const path of panel.querySelectorAll("path.member")) {
        if (path.dataset.name === li.dataset.name) { path.classList.add("marked"); path.parentNode.appendChild(path); }
      }
      if (shown.length < 20) panel.querySelector("details").open = true;
    }
    const crowd = (li) => li.closest("[data-crowd]").dataset.crowd;
    seen.textContent = !text ? "" : !shown.length ? "No member of this name has a crowd here."
      : shown.length === 1 ? `${shown[0].dataset.name}: crowd ${crowd(shown[0])}, ${shown[0].querySelector("span").textContent.replace(/^crowd \d+, /, "")}.`
      : `${shown.length} names, in ${new Set(shown.map(crowd)).size} crowds.`;
  };
  find.addEventListener("input", search);
  find.form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  document.getElementById("clear").addEventListener("click", () => { find.value = ""; search(); find.focus(); });
  if (more) more.addEventListener("click", () => { all(); more.hidden = true; });
})();
