// Types of components on pages of a site's own. Not served: types are for `make lint`.

/** Tells Dash of properties that have changed. */
type TellDash = (properties: object) => void;

type Feed = ReturnType<typeof import("../assets/live/feeds.mjs").anyFeed>;

/** Facts of the figure of the past. */
interface PastFacts {
  every_s: number;
  span: [number, number];
  least_s: number;
  whole: string;
  start: string;
  end: string;
  picture: { file: string; layout: { height: number } & Record<string, unknown> };
}
