// As much of it as assets/live/live.mjs uses.

interface LiveSocket {
  connected: boolean;
  connect(): void;
  disconnect(): void;
  emit(name: string, ...content: unknown[]): void;
  on(name: string, does: (message: any) => void): void;
}

declare function io(namespace: string, options: object): LiveSocket;
