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

/** As much of React as assets/dash_components.js uses. */
interface ReactPart {
  createElement(kind: unknown, traits: object, ...children: unknown[]): unknown;
  memo<P>(draw: (props: P) => unknown, isSame: () => boolean): (props: P) => unknown;
  useEffect(does: () => void | (() => void), on?: unknown[]): void;
  useRef<V>(value: V): { current: V };
}

interface Window {
  React: ReactPart;
  gpudeck_components?: Record<string, unknown>;
}

/** Markup that React makes once. */
interface MarkupProps {
  id?: string;
  tag: string;
  traits: object;
  inside: string;
}

/** A component of gpudeck/components.py; on a page of ours the page's module draws in it. */
interface LiveProps extends MarkupProps {
  driver: string;
  setProps: TellDash;
}

/** The default export of a module of assets/components/. */
type ComponentClass = new (
  place: HTMLElement,
  setProps: TellDash,
) => { draw(props: LiveProps): void; end(): void };
