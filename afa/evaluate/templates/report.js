// The contents: a line for each chapter, and in the appendix for each figure.
function entry(id, heading) {
  const item = document.createElement("li");
  const link = item.appendChild(document.createElement("a"));
  link.href = `#${id}`;
  link.textContent = heading.firstChild.textContent;
  return item;
}

for (const chapter of document.querySelectorAll("main > section")) {
  const item = entry(chapter.id, chapter.querySelector("h2"));
  document.getElementById("contents").append(item);
  const articles = [...chapter.querySelectorAll("article")].filter((article) => article.querySelector("details h3"));
  const figures = articles.map((article) => entry(article.id, article.querySelector("details h3")));
  if (figures.length) item.appendChild(document.createElement("ul")).append(...figures);
}

// The table of all lines: words, or the verdict and kind of a count, choose what is shown.
if (document.getElementById("lines")) choosing();

function choosing() {
  const rows = [...document.querySelectorAll("#lines tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const words = document.getElementById("words");

  function show(wanted) {
    rows.forEach((row, i) => (row.hidden = !wanted(row, texts[i])));
    document.getElementById("shown").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} lines`;
  }

  words.addEventListener("input", () => {
    const wanted = words.value.toLowerCase().split(/\s+/);
    show((_, text) => wanted.every((word) => text.includes(word)));
  });
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll("button[data-verdict]")) {
    button.addEventListener("click", () => {
      const { verdict, kind } = button.dataset;
      words.value = "";
      show((row) => row.dataset.verdict.split(", ").includes(verdict) && row.dataset.kind === kind);
      document.getElementById("comparison").scrollIntoView();
      words.focus({ preventScroll: true });
    });
  }
}

// Pages inside the page: unpacked when they are asked for.
const reader = document.getElementById("reader");
const inside = document.getElementById("inside");

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

for (const button of document.querySelectorAll("button.open")) {
  button.addEventListener("click", async () => {
    document.getElementById("reader-title").textContent = button.dataset.title;
    inside.title = button.dataset.title;
    inside.removeAttribute("srcdoc");
    reader.showModal();
    const page = await unpacked(button.dataset.page);
    if (reader.open && inside.title === button.dataset.title) inside.srcdoc = page;
  });
}
document.getElementById("close").addEventListener("click", () => reader.close());
// The browser reports that the reader closed only later, when another page may be open in it.
reader.addEventListener("close", () => reader.open || inside.removeAttribute("srcdoc"));

// A link into a folded part unfolds it.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.querySelector(":scope > details:not(.behind)")?.setAttribute("open", "");
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
if (matchMedia("(max-width: 60rem)").matches) document.getElementById("menu").open = false;
