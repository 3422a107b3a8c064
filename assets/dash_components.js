// Our Dash components. A classic script: Dash looks for the namespace as soon as the layout has come, and a module may be later.
// What they draw with are modules (assets/components/) of the file that a site's page loads (dashboard/pages/bundle.py).
(function () {
  const { createElement, memo, useEffect, useRef } = window.React;

  // Its inside belongs to our modules: React makes it once and never looks again.
  const Frame = memo(({ id, tag, traits, inside }) => createElement(tag, { ...traits, ...(id && { id }), dangerouslySetInnerHTML: { __html: inside } }), () => true);

  // Around one of our components.
  const Part = ({ tag, traits, children }) => createElement(tag, traits, children);

  /** The element of a component that tells our modules of each answer of a callback. */
  function useAnswers(answer) {
    const place = useRef(null);
    useEffect(() => { if (answer) place.current.dispatchEvent(new CustomEvent("answered", { detail: answer })); }, [answer]);
    return place;
  }

  /** A figure that a callback makes: the page's module asks for it (assets/figures/graph.mjs) and hears the facts beside it. */
  function AnsweredFigure({ id, facts, children }) {
    return createElement("div", { id, className: "answered-figure", ref: useAnswers(facts) }, children);
  }

  /** What a page that is read asks for (assets/reading/read_page.mjs), and what it is answered. */
  function PageAnswer({ id, reading, answer }) {
    return createElement("div", { id, hidden: true, "data-reading": reading, ref: useAnswers(answer) });
  }

  const Deck = ({ children }) => createElement("div", { className: "deck" }, children);

  function Router({ id, children, pathname, setProps }) {
    useEffect(() => { if (pathname !== location.pathname) setProps({ pathname: location.pathname }); }, []);
    return createElement("main", { id, tabIndex: -1 }, children);
  }

  /** A component in whose markup the class of its module in `assets/components/` draws: `draw(props)` at each change, `end()` at the last. */
  function Own({ file, ...props }) {
    const place = useRef(null);
    const shown = useRef(null);
    const latest = useRef(props);
    const { current: made } = useRef(props); // its markup, once: no callback writes HTML here
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
    const { id, tag, traits, inside } = made;
    return createElement(tag, { ...traits, ...(id && { id }), ref: place, dangerouslySetInnerHTML: { __html: inside } });
  }

  /** On a page of ours the page's module draws in it, and joins it with the others. */
  const live = (file) => (props) => createElement(props.driver === "page" ? Frame : Own, { ...props, file });

  window.gpudeck_components = Object.assign(window.gpudeck_components || {}, {
    AnsweredFigure, Deck, Frame, PageAnswer, Part, Router,
    AlertLane: live("alert_lane"), AttentionStrip: live("attention_strip"), LiveHeatmap: live("live_heatmap"), LiveTable: live("live_table"),
    LiveTimeline: live("live_timeline"), Stat: live("stat"), TimeBar: live("time_bar"),
    PoolWeek: Frame, RankMap: Frame, TaskTable: Frame,
  });
})();
