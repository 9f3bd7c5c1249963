// The data: unpacked when they are asked for, and what one run of a patient says by t.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

async function stepsOf(patient) {
  if (!unpackedSteps.has(patient)) unpackedSteps.set(patient, await (await unpacked(`steps-${patient}`)).json());
  return unpackedSteps.get(patient);
}

/** The order of entities, best first, and the positions that tie with the one before, at every t. */
function rankingsOf(run, score) {
  const order = [];
  const tied = [];
  run.moves[score].forEach((moves, t) => {
    const now = t ? order[t - 1].slice() : moves;
    for (let i = 0; t && i < moves.length; i += 2) now.splice(moves[i + 1], 0, ...now.splice(moves[i], 1));
    order.push(now);
    const ties = new Set(t ? tied[t - 1] : []);
    for (const place of run.ties[score][t]) if (!ties.delete(place)) ties.add(place);
    tied.push(ties);
  });
  return { order, tied };
}

/** One run of a patient, of the columns that hold all. */
function runOf(cell) {
  const { values, why, ...columns } = steps;
  return Object.fromEntries(Object.entries(columns).map(([name, byCell]) => [name, byCell[cell]]));
}

/** What one patient's run says, by t. */
function pathOf(run, score) {
  const { order, tied } = rankingsOf(run, score);
  const rank = order.map((ordered) => {
    const ranks = [];
    ordered.forEach((v, i) => { ranks[v] = i + 1; });
    return ranks;
  });
  const resolved = [];
  run.resolved.reduce((sum, more, t) => (resolved[t] = sum + more), 0);
  const guided = score ? rankingsOf(run, 0).order : order;
  const found = rank.map((ranks) => order[last].slice(0, k).filter((v) => ranks[v] <= k).length);
  return { run, order, tied, rank, guided, resolved, found, settled: run.settled[score], certified: run.certified, fallback: new Set(run.fallback) };
}

function cellName(c) {
  const several = cells.filter((other) => other.rule === c.rule && other.gain === c.gain).length > 1;
  return several ? `${c.rule}, order ${c.seed}` : c.rule;
}

function isCertified(t) { return path.certified !== null && t >= path.certified; }
