// The table of all lines: words, verdict and kind choose what is shown.
if (document.getElementById("lines")) choosing();

function choosing() {
  const rows = [...document.querySelectorAll("#lines tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const words = document.getElementById("words");
  const verdict = document.getElementById("verdict");
  const kind = document.getElementById("kind");

  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !(
        wanted.every((word) => texts[i].includes(word)) &&
        (!verdict.value || row.dataset.verdict.split(", ").includes(verdict.value)) &&
        (!kind.value || row.dataset.kind === kind.value)
      );
      shown += row.hidden ? 0 : 1;
    });
    document.getElementById("shown").value = `${shown} of ${rows.length} lines`;
  }

  for (const control of [words, verdict, kind]) {
    for (const event of ["input", "change"]) control.addEventListener(event, filter);
  }
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll("button[data-verdict]")) {
    button.addEventListener("click", () => {
      words.value = "";
      verdict.value = button.dataset.verdict;
      kind.value = button.dataset.kind;
      filter();
      document.getElementById("comparison").scrollIntoView();
      verdict.focus({ preventScroll: true });
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
    reader.showModal();
    inside.srcdoc = await unpacked(button.dataset.page);
  });
}
document.getElementById("close").addEventListener("click", () => reader.close());
reader.addEventListener("close", () => inside.removeAttribute("srcdoc"));

for (const link of document.querySelectorAll("a.save")) {
  link.href = link.parentElement.parentElement.querySelector(`img`).src;
  link.hidden = false;
}

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
