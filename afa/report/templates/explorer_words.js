// The words of the page, and the looks that tell lines apart.
const RULES = {
  random: "Features in an order drawn at random.",
  largest_unary: "The feature of largest absolute effective unary, summed over the entities.",
  greedy: "Largest gain summed over all open duels.",
  lucb: "Largest gain for one duel: the weakest entity inside the top against the strongest outside, by their bounds.",
  clustered: "Largest gain for one duel between champions of clusters, on either side of the boundary of the top.",
  priority_clusters: "The paper's own rule: weighted gain over one duel of each cluster; near the boundary of the top and near a tie weighs most.",
  priority_all: "Weighted gain over all open duels; near the boundary of the top and near a tie weighs most.",
  boundary: "Largest gain summed over the open duels across the boundary of the top.",
};
const GAINS = {
  "": "This rule looks at no gain; shown instead is the feature's absolute effective unary, summed over the entities.",
  wald_magnitude: "How far one measurement can move a duel: the difference of the two effective unaries.",
  cmi: "Mutual information of the measurement and the winner of a duel.",
  f_target: "Expected change of a duel's score by linearity.",
};
const SCORES = {
  linearity: "Expected difference of two entities under the marginals of both. It guides the rules unless another score was chosen.",
  wald: "The energy of what has been measured, and nothing else.",
  two_elbo: "Difference of the two bounds on the log-partition.",
};
const VALUES = new Map([[-1, "\u22121, low"], [0, "0, usual"], [1, "+1, high"]]);
const ARROWS = new Map([[-1, "\u25BC \u22121"], [0, "\u25A0 0"], [1, "\u25B2 +1"]]);
// Colours that the colour-blind tell apart; dash and marker tell the lines apart in grey.
const STYLES = [
  { colour: "#000000", dash: [], marker: "circle" },
  { colour: "#D55E00", dash: [9, 4], marker: "square" },
  { colour: "#0072B2", dash: [2, 3], marker: "diamond" },
  { colour: "#009E73", dash: [12, 3, 2, 3], marker: "triangle" },
  { colour: "#A0478C", dash: [5, 2], marker: "inverted_triangle" },
  { colour: "#7A5C00", dash: [14, 3, 2, 3, 2, 3], marker: "star" },
];
const RESOLVED = { colour: "#0072B2", dash: [] };
const FOUND = { colour: "#D55E00", dash: [6, 3] };
const MARKED = 14;

/** What the words of the page mean, each with its sentence. */
function words() {
  return [
    ["Duel", "Two entities held against each other; the sign of their score says which one the patient's features support more."],
    ["Rank", "By duels won, a tie counting one half, then by the sum of the scores; = marks entities that only their names put in order."],
    ["Gain of a step", "What the chosen feature was expected to tell when it was chosen, in nats: summed over the duels that were open then, each counted once. A rule may weigh duels, or look at one alone; so the sum need not be the largest."],
    ["Fallback", "No candidate had any gain for the rule. It then takes the feature of largest absolute effective unary, and where there is none the first by name."],
    ["Resolved", "No value of what is not yet measured can change the winner of the duel (tight l1 bracket)."],
    ["Certified", `Every duel between the top ${k} and the rest is resolved in favour of the top: by ${scores[0]}, the set can never change again. This is known at that step, without looking ahead. It never comes where a duel across that boundary ends in a tie.`],
    ["Settled", `From that step on, the set of the top ${k} by the chosen score is the one at full observation. This is known in hindsight only.`],
    ["Value", "A measurement against what is usual: +1 high, \u22121 low, 0 neither."],
    ["Label", "What the cohort's records say of the patient, where they say anything; no rule sees it."],
    ...Object.entries(RULES).map(([name, text]) => [`Rule ${name}`, text]),
    ...Object.entries(GAINS).filter(([name]) => name).map(([name, text]) => [`Gain ${name}`, text]),
    ...Object.entries(SCORES).map(([name, text]) => [`Score ${name}`, text]),
  ];
}
