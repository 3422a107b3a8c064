// Types of a notebook's widget. Not served: types are for `make lint`.

/** A task of the user; one that has ended stays while the outcome of its action is read. */
type OwnTask = Hub.TaskPicture & { isGone?: boolean };

/** A message of the kernel about a request (widget/live_widget.py). */
type KernelMessage = { ask: string } & (
  | { kind: "shown"; preview: Hub.PreviewView }
  | { kind: "ordered"; commands: Hub.CommandView[] }
  | { kind: "told"; command: Hub.CommandView }
  | { kind: "sorry"; sentence: string }
);

/** A request to the kernel. */
type KernelRequest =
  | { kind: "look"; ask: string; action: string; task: string }
  | { kind: "order"; ask: string; reason: string };
