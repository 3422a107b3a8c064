// Our Dash components. A classic script: Dash looks for the namespace as soon as the layout has come, and a module may be later.
// What they draw with are modules (assets/components/) of the file that a site's page loads (dashboard/pages/bundle.py).
(function () {
  const { createElement, memo, useEffect, useRef } = window.React;

  // Its inside belongs to our modules: React makes it once and never looks again.
  const Frame = memo(({ tag, traits, inside }) => createElement(tag, { ...traits, dangerouslySetInnerHTML: { __html: inside } }), () => true);

  // Around one of our components.
  const Part = ({ tag, traits, children }) => createElement(tag, traits, children);

  /** A figure that a callback makes: the page's module asks for it (assets/charts/graph.mjs) and hears the facts beside it. */
  function AnsweredFigure({ id, facts, children }) {
    const place = useRef(null);
    useEffect(() => { if (facts) place.current.dispatchEvent(new CustomEvent("answered", { detail: facts })); }, [facts]);
    return createElement("div", { id, className: "answered-figure", ref: place }, children);
  }

  const Deck = ({ children }) => createElement("div", { className: "deck" }, children);

  function Router({ id, children, pathname, setProps }) {
    useEffect(() => { if (pathname !== location.pathname) setProps({ pathname: location.pathname }); }, []);
    return createElement("main", { id, tabIndex: -1 }, children);
  }

  /** A component that a class in `assets/components/` draws: `draw(props)` at each change, `end()` at the last. */
  const drawn = (name, file, heightOf) => function Drawn(props) {
    const place = useRef(null);
    const shown = useRef(null);
    const latest = useRef(props);
    latest.current = props;
    useEffect(() => {
      let isOver = false;
      import(document.getElementById("modules").src).then(({ load }) => load(`components/${file}.mjs`)).then(({ default: Shown }) => {
        if (isOver) return;
        shown.current = new Shown(place.current, (given) => latest.current.setProps(given));
        shown.current.draw(latest.current);
      });
      return () => { isOver = true; shown.current?.end(); };
    }, []);
    useEffect(() => { shown.current?.draw(props); });
    // Its room from the start, so that what is below it stays where it is.
    return createElement("div", { id: props.id, className: `site-${name}`, style: { minHeight: heightOf(props) }, ref: place });
  };

  window.gpudeck_components = Object.assign(window.gpudeck_components || {}, {
    AnsweredFigure, Deck, Frame, Part, Router,
    LiveHeatmap: drawn("heatmap", "live_heatmap", ({ height }) => height + 30),
    LiveTimeline: drawn("timeline", "live_timeline", () => 240),
    LiveTable: drawn("table", "live_table", () => 28),
    Stat: drawn("stat", "stat", () => 52),
  });
})();
