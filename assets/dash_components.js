// Our Dash components. A classic script: Dash looks for the namespace as soon as the layout has come, and a module may be later.
// They draw with modules (assets/components/) of the file that a site's page loads (dashboard/pages/bundle.py).
(function () {
  const { createElement, memo, useEffect, useRef } = window.React;

  // Its inside belongs to our modules: React makes it once and never looks again.
  const Frame = memo(
    (/** @type {MarkupProps} */ { id, tag, traits, inside }) =>
      createElement(tag, {
        ...traits,
        ...(id && { id }),
        dangerouslySetInnerHTML: { __html: inside },
      }),
    () => true,
  );

  // Around one of our components.
  /** @type {(props: { tag: string, traits: object, children: unknown }) => unknown} */
  const Part = ({ tag, traits, children }) => createElement(tag, traits, children);

  /**
   * The element of a component that tells our modules of each answer of a callback.
   * @param {object | null} answer
   */
  function useAnswers(answer) {
    const place = useRef(/** @type {HTMLElement | null} */ (null));
    useEffect(() => {
      if (answer) place.current?.dispatchEvent(new CustomEvent("answered", { detail: answer }));
    }, [answer]);
    return place;
  }

  /**
   * A figure that a callback makes: the page's module asks for it (assets/figures/graph.mjs) and receives the facts beside it.
   * @param {{ id: string, facts: object | null, children: unknown }} props
   */
  function AnsweredFigure({ id, facts, children }) {
    return createElement(
      "div",
      { id, className: "answered-figure", ref: useAnswers(facts) },
      children,
    );
  }

  /**
   * The request of a page that the hub writes (assets/reading/read_page.mjs), and the answer.
   * @param {{ id: string, reading: string, answer: object | null }} props
   */
  function PageAnswer({ id, reading, answer }) {
    return createElement("div", {
      id,
      "hidden": true,
      "data-reading": reading,
      "ref": useAnswers(answer),
    });
  }

  /** @type {(props: { children: unknown }) => unknown} */
  const Deck = ({ children }) => createElement("div", { className: "deck" }, children);

  /** @param {{ id: string, children: unknown, pathname: string, setProps: TellDash }} props */
  function Router({ id, children, pathname, setProps }) {
    useEffect(() => {
      if (pathname !== location.pathname) setProps({ pathname: location.pathname });
    }, []);
    return createElement("main", { id, tabIndex: -1 }, children);
  }

  /**
   * A component in whose markup the class of its module in `assets/components/` draws: `draw(props)` at each change, `end()` at the last.
   * @param {LiveProps & { file: string }} props
   */
  function Own({ file, ...props }) {
    const place = useRef(/** @type {HTMLElement | null} */ (null));
    const component = useRef(/** @type {InstanceType<ComponentClass> | null} */ (null));
    const latest = useRef(props);
    const { current: made } = useRef(props); // its markup, once: no callback writes HTML here
    latest.current = props;
    useEffect(() => {
      let isOver = false;
      const modules = /** @type {HTMLScriptElement} */ (document.getElementById("modules"));
      import(modules.src)
        .then(({ load }) => load(`components/${file}.mjs`))
        .then((/** @type {{ default: ComponentClass }} */ { default: Shown }) => {
          if (isOver || place.current === null) return;
          component.current = new Shown(place.current, (changed) =>
            latest.current.setProps(changed),
          );
          component.current.draw(latest.current);
        });
      return () => {
        isOver = true;
        component.current?.end();
      };
    }, []);
    useEffect(() => {
      component.current?.draw(props);
    });
    const { id, tag, traits, inside } = made;
    return createElement(tag, {
      ...traits,
      ...(id && { id }),
      ref: place,
      dangerouslySetInnerHTML: { __html: inside },
    });
  }

  /**
   * Makes a live component; on our own pages the page's module draws in it, and joins it with the others.
   * @type {(file: string) => (props: LiveProps) => unknown}
   */
  const live = (file) => (props) =>
    createElement(props.driver === "page" ? Frame : Own, { ...props, file });

  window.gpudeck_components = Object.assign(window.gpudeck_components || {}, {
    AnsweredFigure,
    Deck,
    Frame,
    PageAnswer,
    Part,
    Router,
    AlertLane: live("alert_lane"),
    AttentionStrip: live("attention_strip"),
    LiveHeatmap: live("live_heatmap"),
    LiveTable: live("live_table"),
    LiveTimeline: live("live_timeline"),
    Stat: live("stat"),
    TimeBar: live("time_bar"),
    PoolWeek: Frame,
    RankMap: Frame,
    TaskTable: Frame,
  });
})();
