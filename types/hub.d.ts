// Made by docs/make_types.py from what the hub sends; for `make lint`, and never served.

declare namespace Hub {
  /** Answer to a request such as `GET nodes/ID?fields=…`. */
  type Answer<V extends string> = V extends `${infer Path}?${string}` ? PathAnswer<Path> : PathAnswer<V>;
  type PathAnswer<V extends string> =
    V extends "GET audit/export" ? null :
    V extends "GET audit/verify" ? AuditVerdictView :
    V extends "GET gpu/health" ? PoolHealthView :
    V extends "GET gpu/monitoring" ? MonitoringView :
    V extends "GET gpu/nodes" ? SourceNodeList :
    V extends "GET gpu/status" ? PoolStatusView :
    V extends "GET mps/past" ? MpsUsageView :
    V extends "GET pool/nodes" ? PoolNodeList :
    V extends "GET pool/policy" ? PolicyView :
    V extends "GET pool/strategies" ? StrategyList :
    V extends "GET rules/backtests" ? BacktestList :
    V extends "GET sites/alerts" ? SiteAlertList :
    V extends "POST gpu/allocate" ? AllocationView :
    V extends "POST gpu/release" ? ReleaseView :
    V extends "POST gpu/setup-pytorch" ? SetupView :
    V extends "POST gpu/setup-tensorflow" ? SetupView :
    V extends "POST gpu/validate" ? ValidationView :
    V extends "POST nodes/approvals" ? ApprovalViewList :
    V extends "POST pool/simulations" ? SimulationView :
    V extends "POST rules/backtests" ? BacktestView :
    V extends "PUT pool/policy" ? PolicyView :
    V extends "DELETE hold" ? HoldStateView :
    V extends "GET addresses" ? AddressList :
    V extends "GET advice" ? AdviceList :
    V extends "GET alerts" ? AlertList :
    V extends "GET archive" ? ArchiveView :
    V extends "GET audit" ? AuditRecordList :
    V extends "GET block" ? PastBlockView :
    V extends "GET brakes" ? BrakesView :
    V extends "GET claims" ? ClaimList :
    V extends "GET commands" ? CommandList :
    V extends "GET enrolments" ? EnrolmentList :
    V extends "GET events" ? EventList :
    V extends "GET findings" ? FindingList :
    V extends "GET forecasts" ? ForecastList :
    V extends "GET gpus" ? GpuList :
    V extends "GET hold" ? HoldStateView :
    V extends "GET instant" ? InstantView :
    V extends "GET jobs" ? JobList :
    V extends "GET kubernetes" ? KubernetesList :
    V extends "GET leases" ? LeaseList :
    V extends "GET limits" ? LimitsList :
    V extends "GET load" ? FleetLoadView :
    V extends "GET maintenance" ? MaintenanceList :
    V extends "GET me" ? CurrentActorView :
    V extends "GET mig" ? MigList :
    V extends "GET moment" ? PastMomentView :
    V extends "GET mps" ? MpsList :
    V extends "GET nodes" ? NodeList :
    V extends "GET notices" ? WaitingNotificationList :
    V extends "GET plans" ? ActionPlanList :
    V extends "GET pool" ? PoolView :
    V extends "GET qos" ? QosReport :
    V extends "GET quotas" ? QuotaList :
    V extends "GET receivers" ? ReceiverList :
    V extends "GET repairs" ? RepairList :
    V extends "GET reports" ? Report :
    V extends "GET rules" ? RuleList :
    V extends "GET series" ? SeriesView :
    V extends "GET sessions" ? SessionList :
    V extends "GET sign-ins" ? SignInList :
    V extends "GET silences" ? SilenceList :
    V extends "GET sites" ? SiteList :
    V extends "GET slurm" ? SlurmList :
    V extends "GET tasks" ? TaskList :
    V extends "GET teams" ? TeamList :
    V extends "GET tokens" ? TokenList :
    V extends "GET totals" ? PastTotalsView :
    V extends "GET usage" ? UsageList :
    V extends "GET users" ? UserList :
    V extends "POST addresses" ? AddressList :
    V extends "POST brakes" ? BrakesView :
    V extends "POST claims" ? NewClaimView :
    V extends "POST commands" ? OrderResultView :
    V extends "POST enrolments" ? EnrolmentView :
    V extends "POST estimates" ? EstimateView :
    V extends "POST fresh" ? ReauthenticationView :
    V extends "POST hold" ? HoldStateView :
    V extends "POST imports" ? ImportView :
    V extends "POST previews" ? PreviewView :
    V extends "POST quota-checks" ? QuotaCheck :
    V extends "POST receivers" ? ReceiverView :
    V extends "POST rule-checks" ? RuleCheck :
    V extends "POST sign-out-everywhere" ? null :
    V extends "POST silences" ? SilenceView :
    V extends "POST teams" ? TeamList :
    V extends "POST tokens" ? TokenView :
    V extends "POST users" ? UserView :
    V extends "PUT addresses" ? AddressList :
    V extends "PUT qos" ? QosReport :
    V extends "PUT teams" ? TeamList :
    V extends `POST rules/backtests/${string}/approve` ? BacktestView :
    V extends `DELETE nodes/${string}/maintenance` ? null :
    V extends `DELETE tasks/${string}/keep` ? null :
    V extends `GET nodes/${string}/quotas` ? NodeQuotaList :
    V extends `GET owners/${string}/quotas` ? OwnerQuotaList :
    V extends `GET quotas/${string}/past` ? QuotaHistoryView :
    V extends `GET quotas/${string}/versions` ? QuotaVersionList :
    V extends `GET rules/backtests/${string}` ? BacktestView :
    V extends `GET tasks/${string}/quotas` ? TaskQuotaList :
    V extends `POST advice/${string}/dismiss` ? null :
    V extends `POST advice/${string}/recall` ? null :
    V extends `POST alerts/${string}/confirm` ? CommandView :
    V extends `POST leases/${string}/extend` ? null :
    V extends `POST leases/${string}/give-back` ? null :
    V extends `POST nodes/${string}/approve` ? NodeView :
    V extends `POST nodes/${string}/revoke` ? NodeView :
    V extends `POST notices/${string}/retry` ? null :
    V extends `POST plans/${string}/approve` ? OrderResultView :
    V extends `POST receivers/${string}/test` ? ReceiverTestView :
    V extends `POST rules/${string}/mode` ? RuleView :
    V extends `POST users/${string}/link` ? UserView :
    V extends `PUT nodes/${string}/maintenance` ? MaintenanceView :
    V extends `PUT tasks/${string}/keep` ? KeepView :
    V extends `DELETE addresses/${string}` ? null :
    V extends `DELETE claims/${string}` ? null :
    V extends `DELETE enrolments/${string}` ? null :
    V extends `DELETE notices/${string}` ? null :
    V extends `DELETE plans/${string}` ? null :
    V extends `DELETE qos/${string}` ? null :
    V extends `DELETE quotas/${string}` ? null :
    V extends `DELETE receivers/${string}` ? null :
    V extends `DELETE rules/${string}` ? null :
    V extends `DELETE sessions/${string}` ? null :
    V extends `DELETE silences/${string}` ? null :
    V extends `DELETE teams/${string}` ? null :
    V extends `DELETE tokens/${string}` ? null :
    V extends `DELETE users/${string}` ? null :
    V extends `GET commands/${string}` ? CommandView :
    V extends `GET enrolments/${string}` ? EnrolmentView :
    V extends `GET gpus/${string}` ? GpuView :
    V extends `GET jobs/${string}` ? JobPage :
    V extends `GET nodes/${string}` ? NodeView :
    V extends `GET quotas/${string}` ? QuotaView :
    V extends `GET rules/${string}` ? RuleView :
    V extends `GET tasks/${string}` ? TaskView :
    V extends `PATCH nodes/${string}` ? NodeView :
    V extends `PATCH users/${string}` ? UserView :
    V extends `PUT qos/${string}` ? null :
    V extends `PUT quotas/${string}` ? QuotaView :
    V extends `PUT receivers/${string}` ? ReceiverView :
    V extends `PUT rules/${string}` ? RuleView :
    unknown;

  /** Messages of the live socket. */
  interface Messages {
    layout: Layout;
    cells: Cells;
    lines: Lines;
    owners: Owners;
    leases: Leases;
    totals: Totals;
    filter: FilterReply;
    events: NewestEvents;
    bye: Bye;
    command: CommandView;
    hold: HoldStateView;
    alert: AlertView;
    lease: LeaseView;
    claim: ClaimChangeView;
  }

  interface ActionParameter {
    name: "checkpoint_signal" | "checkpoint_wait_s" | "checkpoint_within_s" | "grace_s" | "text";
    flag: string;
    help: string;
    default: number | null;
    choices: string[];
  }

  interface ActionParams {
    grace_s: number;
    checkpoint_signal: "HUP" | "INT" | "USR1" | "USR2" | null;
    checkpoint_wait_s: number;
    text: string;
    checkpoint_within_s: number;
    setting: MpsPercent | MpsMemory | MpsPriority | MpsPreset | MpsStart | MpsStop | MpsRestart | PowerCap | ClockLock | LimitRelease | ComputeMode | TimeSlice | Cordon | Drain | ReturnToService | GpuReset | GpuDiagnosis | MigLayout | SlurmCancel | SlurmHold | SlurmRelease | SlurmRequeue | SlurmSuspend | SlurmContinue | SlurmDrain | SlurmResume | KubernetesDelete | KubernetesEvict | KubernetesCordon | KubernetesUncordon | null;
  }

  interface ActionPlanList {
    items: ActionPlanView[];
  }

  interface ActionPlanView {
    id: string;
    state: "approved" | "expired" | "waiting" | "withdrawn";
    ends_at: number;
    items: PreviewItemView[];
    action: string;
    params: ActionParams;
    by: RequesterView;
    reason: string;
    asked_at: number;
  }

  interface ActionRequirementsView {
    fresh: boolean;
    second_person: boolean;
    maintenance: boolean;
  }

  interface ActionRow {
    id: "cordon" | "diagnose_gpu" | "drain" | "end" | "hold" | "kubernetes_cordon" | "kubernetes_delete" | "kubernetes_evict" | "kubernetes_uncordon" | "limit" | "lock_clocks" | "notify" | "pause" | "release" | "release_limit" | "reset_gpu" | "restart_mps" | "restore" | "resume" | "return_to_service" | "set_compute_mode" | "set_mig_layout" | "set_mps" | "set_power_cap" | "set_time_slice" | "slurm_cancel" | "slurm_continue" | "slurm_drain" | "slurm_hold" | "slurm_release" | "slurm_requeue" | "slurm_resume" | "slurm_suspend" | "start_mps" | "stop_mps" | "suspend" | "terminate_client";
    label: string;
    doing: string;
    ended: string;
    subject: string;
    done: string;
    proof: "" | "exit" | "neighbours" | "read_back" | "step";
    last_words: string;
    is_setting: boolean;
    is_off: boolean;
    is_unverified: boolean;
    signals: boolean;
    is_kill: boolean;
    is_harmful: boolean;
    only_tells: boolean;
    slows: boolean;
    for_rules: boolean;
    rung: "end" | "limit" | "pause" | "suspend" | "tell" | null;
    key: string;
    in_rows: boolean;
    fits: "" | "paused" | "running" | "suspended";
    undo: "end" | "limit" | "notify" | "pause" | "restore" | "resume" | "suspend" | "terminate_client" | null;
    is_typed: boolean;
    params: ActionParameter[];
    does: string;
    summary: string;
    mail_subject: string;
    mail_text: string;
    ranks_left: string;
  }

  interface AddressList {
    items: AddressView[];
  }

  interface AddressView {
    unix_name: string;
    address: string;
  }

  interface AdviceDismissal {
    reason: string;
    by: string;
    at: number;
  }

  interface AdviceList {
    hours: number;
    least_hours: number;
    items: AdviceView[];
  }

  interface AdviceView {
    id: string;
    kind: string;
    label: string;
    title: string;
    reason: string;
    gpu_hours: number;
    risk: string;
    past: string;
    command: string;
    undo: string;
    owner: string | null;
    gpus: string[];
    dismissed: AdviceDismissal | null;
    unit: string;
  }

  interface AgentCostView {
    cpu_pct: number | null;
    memory_bytes: number | null;
    read_s: number | null;
    outbox_bytes: number | null;
  }

  interface AlertList {
    items: AlertView[];
    next: string | null;
  }

  interface AlertView {
    id: string;
    rule: string;
    title: string;
    severity: "crit" | "info" | "warn";
    of: "fleet" | "gpu" | "job" | "node" | "owner" | "task";
    target: string;
    node: string;
    host: string;
    place: string;
    users: string[];
    gpus: string[];
    state: "ended" | "firing" | "pending" | "resolving";
    since: number;
    fired_at: number;
    changed_at: number;
    ended_at: number | null;
    value: number | null;
    comebacks: number;
    why: string;
    holds: string[];
    silenced_by: string[];
    inhibited_by: string[];
    ladder: LadderView | null;
  }

  interface AllocationView {
    success: boolean;
    node_name: string | null;
    lease_id: string | null;
    gpu_uuids: string[];
    expires_at: string | null;
    environment: Record<string, string>;
    host_words: string;
    reason: string;
    gpu_config: GpuConfigView;
  }

  interface ApprovalView {
    fingerprint: string;
    host: string | null;
    outcome: "already" | "approved" | "revoked" | "unknown";
  }

  interface ApprovalViewList {
    items: ApprovalView[];
    next: string | null;
  }

  interface ArchiveView {
    state: "archiving" | "failed" | "joining" | "none";
    failed_since: number | null;
    why: string | null;
    behind_s: number | null;
    files: number;
    bytes: number;
    waiting_files: number;
    single_copy_nodes: number;
  }

  interface AuditBreakView {
    seq: number;
    sentence: string;
  }

  interface AuditRecordList {
    items: AuditRecordView[];
    next: string | null;
  }

  interface AuditRecordView {
    seq: number;
    at: number | null;
    kind: string;
    actor: string | null;
    actor_kind: string | null;
    address: string | null;
    action: string | null;
    node: string | null;
    host: string | null;
    task_id: string | null;
    command_id: string | null;
    outcome: string | null;
    sentence: string;
    detail: Record<string, any>;
    hash: string;
  }

  interface AuditVerdictView {
    records: number;
    head: string;
    broken: AuditBreakView | null;
    nodes: NodeAuditView[];
  }

  interface BacktestList {
    items: BacktestView[];
  }

  interface BacktestView {
    id: string;
    rule: Rule;
    rule_version: string;
    of: "fleet" | "gpu" | "job" | "node" | "owner" | "task";
    severity: "crit" | "info" | "warn";
    start: number;
    end: number;
    by: string;
    asked_at: number;
    grain_s: number;
    off_by_s: number;
    state: "done" | "failed" | "running";
    progress: number;
    why: string;
    targets: number;
    alerts_count: number;
    alerts: RehearsalAlertView[];
    victims_count: number;
    victims: RehearsalVictimView[];
    gpu_hours: number | null;
    refused_count: number;
    refused: RehearsalVictimView[];
    approved_by: string | null;
    approved_at: number | null;
  }

  interface BrakeTrip {
    at: number;
    brake: "breaker" | "cause" | "fleet" | "node" | "pace" | "storm";
    sentence: string;
  }

  interface BrakeView {
    name: "breaker" | "cause" | "fleet" | "node" | "pace" | "storm";
    title: string;
    limit: string;
    lets_go: string;
    holds: boolean;
    used: number | null;
    most: number | null;
    sentence: string;
  }

  interface BrakesView {
    breaker: BrakeTrip | null;
    storms: StormTripView[];
    brakes: BrakeView[];
    in_flight: string[];
    spent: CountedActionView[];
  }

  interface BusiestHourView {
    start: number;
    end: number;
    util_mean_pct: number;
  }

  interface Bye {
    reason: string;
  }

  interface BystanderView {
    task_id: string;
    user: string | null;
    command: string | null;
    gpus: GpuUseView[];
  }

  interface Cells {
    at: number;
    cells: Uint8Array;
    epoch: number;
    exact: Uint8Array | null;
    mask: Uint8Array | null;
    matched: number;
    metric: string;
    n: number;
  }

  interface ChannelView {
    kind: "alertmanager" | "custom" | "discord" | "heartbeat" | "jsm" | "mail" | "ntfy" | "owners" | "pagerduty" | "slack" | "teams" | "webhook";
    title: string;
    destination: "addresses" | "none" | "url";
    needs_mail: boolean;
    has_template: boolean;
    to_words: string;
    wants_words: string;
  }

  interface CheckpointsView {
    last_at: number;
    every_s: number;
    next_at: number;
    seen: number;
  }

  interface ClaimChangeView {
    id: string;
    claim: ClaimView | null;
  }

  interface ClaimLimits {
    priority: number;
    waiting: number;
    reserved_gpu_h: number | null;
    term_s: number;
    extends_while_waited: boolean;
  }

  interface ClaimList {
    items: ClaimView[];
    next: string | null;
  }

  interface ClaimPicture {
    asks: string;
    estimate: string;
    place: number;
    starts_at: number | null;
    why: string;
  }

  interface ClaimView {
    id: string;
    owner: string;
    asks: string;
    gpus: number;
    priority: number;
    asked_at: number;
    place: number;
    why: string;
    wait_s: number | null;
    hosts: string[];
    term_s: number;
    starts_at: number | null;
    is_here: boolean;
    estimate: string;
    kept: string[];
    team: string | null;
  }

  interface ClockLock {
    type: "clock_lock";
    gpu_uuid: string;
    min_mhz: number;
    max_mhz: number;
    lease_s: number;
  }

  interface CollectiveRankView {
    rank: number;
    host: string;
    pid: number | null;
    gpu: number | null;
  }

  interface CollectivesView {
    trouble: string;
    communicator: string;
    size: number;
    still_s: number;
    ahead: number;
    least: number;
    most: number;
    behind: CollectiveRankView[];
    behind_count: number;
    missing: CollectiveRankView[];
    missing_count: number;
    is_mixed: boolean;
  }

  interface CommandList {
    items: CommandView[];
    next: string | null;
  }

  interface CommandTransitionView {
    state: string;
    at: number;
    step: string;
  }

  interface CommandView {
    id: string;
    action: string;
    node: string;
    host: string;
    state: "accepted" | "acting" | "done" | "expired" | "not_effective" | "queued" | "refused" | "requested" | "sent" | "unkillable" | "unknown";
    sentence: string;
    task_id: string | null;
    job_id: string | null;
    owner: string | null;
    command: string | null;
    step: string;
    refusal: RefusalView | null;
    verified: VerificationView | null;
    reason: string;
    updated_at: number;
    task_ids: string[];
    mem_used_bytes: number | null;
    by: RequesterView;
    requested_at: number;
    history: CommandTransitionView[];
  }

  interface CompletedStepView {
    do: string;
    at: number;
    ended_at: number | null;
    outcome: string | null;
    sentence: string;
  }

  interface ComputeMode {
    type: "compute_mode";
    gpu_uuid: string;
    mode: "default" | "exclusive_process";
  }

  interface Cordon {
    type: "cordon";
    gpu_uuid: string;
  }

  interface CountedActionView {
    at: number;
    source: string;
    node: string;
  }

  interface CurrentActorView {
    kind: "person" | "program";
    name: string;
    role: "admin" | "operator" | "user" | "viewer";
    groups: string[];
    unix_names: string[];
    fresh_until: number | null;
    second_person: boolean;
    confirms: "password" | "provider";
  }

  interface DemandForecastView {
    name: string;
    recent_from: number;
    recent: (number | null)[];
    starts_at: number;
    p10: number[];
    p50: number[];
    p90: number[];
    gpus: number;
    usual_day: number[];
    test: DemandTestView | null;
    why: string;
  }

  interface DemandTestView {
    days: number;
    errors: Record<string, number>;
    method: string;
    best_naive: string;
    ratio: number;
    covered_pct: number | null;
  }

  interface DonePicture {
    at: number;
    by: string;
    host: string;
    reason: string;
    words: string;
  }

  interface Drain {
    type: "drain";
    gpu_uuid: string;
    within_s: number;
  }

  interface EnrolmentList {
    items: EnrolmentView[];
    next: string | null;
  }

  interface EnrolmentView {
    id: string;
    host: string | null;
    approve: boolean;
    group: string;
    created_at: number;
    created_by: string;
    expires_at: number;
    used_by: string | null;
    uses: number;
    used: number;
    networks: string;
    token?: string | null;
    command?: string | null;
  }

  interface EstimateView {
    family: string | null;
    parameters: number;
    active: number | null;
    gpus: number;
    parts: PartView[];
    allocated: number | null;
    total: number | null;
    low: number | null;
    high: number | null;
    ask: number | null;
    error: number;
    inexact: string[];
    missing: string[];
    notes: string[];
    speed: SpeedView | null;
    fits: FitView[];
  }

  interface EventList {
    items: EventView[];
    next: string | null;
  }

  interface EventView {
    id: string;
    at: number;
    node: string;
    host: string;
    gpu: string | null;
    index: number | null;
    task: string | null;
    kind: string;
    label: string;
    severity: "critical" | "info" | "warning";
    text: string;
    advice: string;
    numbers: Record<string, number>;
    place: string | null;
  }

  interface FilterReply {
    at: number | null;
    error: string | null;
    ok: boolean;
    text: string;
  }

  interface FindingEvidence {
    metric: string;
    value: number | null;
    against: number | null;
    against_is: string;
  }

  interface FindingList {
    items: FindingView[];
    unchecked: number;
  }

  interface FindingView {
    jobs: string[];
    kind: "crashed_rank" | "memory_unused" | "slow_rank" | "starved" | "stuck" | "unused";
    sentence: string;
    since: number | null;
  }

  interface FitView {
    model: string;
    mem_bytes: number | null;
    there: number;
    free: number;
    gpus: number | null;
    layout: string;
    ask_bytes: number | null;
    speed: SpeedView | null;
    command: string;
    why: string;
  }

  interface FleetLoadView {
    start: number;
    step: number;
    busiest: BusiestHourView | null;
    groups: string[];
    models: string[];
    gpus: (number | null)[];
    util_mean_pct: (number | null)[];
    power_w: (number | null)[];
    mem_used_bytes: (number | null)[];
  }

  interface FleetPicture {
    at: number;
    claims: ClaimPicture[];
    detail: string;
    done: DonePicture[];
    every_s: number;
    free: FreePicture[];
    hub: string;
    kind: "fleet";
    leases: LeasePicture[];
    quotas: QuotaPicture[];
    reader: "failed" | "ok";
    rows: NodePicture[];
    tasks: TaskPicture[];
    why_no_tasks: string;
    words: string;
  }

  interface ForecastList {
    memory: MemoryForecastList;
    demand: DemandForecastView[];
    run_times: RunTimeList;
    waits: WaitList;
  }

  interface FramesView {
    stream: string;
    first_seq: number | null;
    last_seq: number | null;
    acked_seq: number;
    applied: number;
    duplicates: number;
    missing: number;
    late: number;
    future: number;
    unreadable: number;
    out_of_range: number;
  }

  interface FreePicture {
    gpus: number;
    host: string;
    name: string;
  }

  interface GpuConfigView {
    gpu_count: number;
    gpu_type: string | null;
    memory_gb: number | null;
    distributed_training: boolean;
  }

  interface GpuCounts {
    error: number;
    free: number;
    lost: number;
    offline: number;
    ok: number;
    stale: number;
    total: number;
  }

  interface GpuDiagnosis {
    type: "gpu_diagnosis";
    gpu_uuid: string;
    level: 1 | 2;
  }

  interface GpuFactsView {
    parent_uuid: string | null;
    mig_profile: string | null;
    gpu_instance: number | null;
    compute_instance: number | null;
    minor: number | null;
    serial: string | null;
    vbios: string | null;
    compute_capability: string | null;
    numa_node: number | null;
    pcie_gen_max: number | null;
    pcie_width_max: number | null;
    power_limit_min_w: number | null;
    power_limit_max_w: number | null;
    power_limit_default_w: number | null;
    pci_bus_id: string | null;
    mem_total_bytes: number | null;
    power_limit_w: number | null;
    sm_clock_max_mhz: number | null;
    mem_clock_max_mhz: number | null;
    temp_slowdown_c: number | null;
    temp_shutdown_c: number | null;
    mem_temp_max_c: number | null;
    mem_margin_min_c: number | null;
    accounting_on: boolean | null;
    driver: string | null;
  }

  interface GpuLinkView {
    a: string;
    b: string;
    path: "board" | "host bridge" | "numa node" | "one switch" | "switches" | "system";
    nvlinks: number | null;
  }

  interface GpuList {
    items: GpuView[];
    next: string | null;
  }

  interface GpuMpsUsageView {
    gpu: string;
    util_pct: (number | null)[];
    is_mps: (boolean | null)[];
  }

  interface GpuPicture {
    held: HeldPicture[];
    missing: Record<string, string>;
    name: string;
    past: ((number | null)[])[];
    place: string;
    state: string;
    total: number | null;
    uuid: string;
    values: Record<string, number>;
  }

  interface GpuProblemView {
    node_name: string;
    gpu_uuid: string;
    reason: string;
  }

  interface GpuReset {
    type: "gpu_reset";
    gpu_uuid: string;
  }

  interface GpuUseView {
    uuid: string;
    index: number | null;
    mem_used_bytes: number | null;
    place: string | null;
  }

  interface GpuView {
    uuid: string;
    node: string;
    host: string;
    index: number;
    place: string;
    name: string;
    state: "error" | "lost" | "ok" | "stale";
    sampled_at: number | null;
    age_s: number | null;
    values: Record<string, number>;
    missing: Record<string, "denied" | "lost" | "stale" | "unknown" | "unsupported">;
    facts: GpuFactsView;
    tasks: string[];
    is_free: boolean;
    last_values?: Record<string, number> | null;
    slow_sampled_at?: number | null;
    slow_age_s?: number | null;
    site?: string | null;
    link?: string | null;
    wasted_s?: number | null;
    why_not_free?: WhyNotFreeView | null;
  }

  interface GroupMemoryLimit {
    gpu_uuid: string;
    group: string;
    group_id: string;
    limit_bytes: number;
    holder: string;
    boot_id: string;
    began_at: number;
    set_bytes: number | null;
    state: "beginning" | "drifted" | "in_force" | "not_in_force" | "unknown";
    words: string;
  }

  interface GrowingMemoryView {
    task_id: string;
    node: string;
    host: string;
    gpu: string;
    place: string;
    user: string | null;
    bytes_per_s: IntervalView;
    full_in_s: IntervalView | null;
    why: string;
  }

  interface HeldPicture {
    bytes: number;
    rank: number;
    who: string;
  }

  interface HoldStateView {
    fleet: HoldView | null;
    nodes: NodeHoldView[];
  }

  interface HoldView {
    by: string;
    reason: string;
    since: number;
  }

  interface HostLoadView {
    age_s: number;
    numbers: Record<string, number>;
    missing: Record<string, string>;
  }

  interface HostUseView {
    cpu_pct: number | null;
    mem_bytes: number | null;
    read_bytes_per_s: number | null;
    write_bytes_per_s: number | null;
    blocked: number | null;
  }

  interface ImportView {
    node: string;
    host: string;
    uuids: string[];
    samples: number;
    step_s: number;
  }

  interface InstantItem {
    gpu: string;
    node: string;
    t: number | null;
    value: number | null;
    missing: string | null;
  }

  interface InstantView {
    metric: string;
    unit: string;
    at: number;
    items: InstantItem[];
  }

  interface IntervalView {
    low: number;
    mid: number;
    high: number;
  }

  interface JobEventView {
    t: number;
    kind: string;
    gpu: string | null;
    text: string;
    numbers: Record<string, number>;
  }

  interface JobFinding {
    kind: "crashed_rank" | "memory_unused" | "slow_rank" | "starved" | "stuck" | "unused";
    sentence: string;
    since: number | null;
    ranks: number[];
    evidence: FindingEvidence[];
  }

  interface JobItem {
    id: string;
    jobs: string[];
    user: string | null;
    team: string | null;
    command: string | null;
    launch: string | null;
    slurm_job: string | null;
    container: string | null;
    pod: string | null;
    namespace: string | null;
    unit: string | null;
    manager: string | null;
    nodes: string[];
    hosts: string[];
    gpus: number;
    tasks: number;
    started_at: number | null;
    first_seen: number;
    last_seen: number;
    ended_at: number | null;
  }

  interface JobList {
    items: JobItem[];
    total: number;
  }

  interface JobPage {
    job: JobItem;
    is_running: boolean;
    start: number;
    end: number;
    step: number;
    t: number[];
    ranks: JobRankView[];
    series: Record<string, ((number | null)[])[]>;
    findings: JobFinding[];
    totals: JobTotals;
    events: JobEventView[];
    serving: ServingView[];
    step_period_s: number | null;
    phases: JobPhase[];
    checkpoints: CheckpointsView[];
    collectives: CollectivesView[];
    tasks_now: JobTasksNow | null;
    cost_per_million_tokens: number | null;
  }

  interface JobPhase {
    kind: "checkpoint" | "evaluation" | "idle" | "loading" | "pause" | "serving" | "training" | "unknown" | "work";
    start: number;
    end: number;
  }

  interface JobRankView {
    number: number | null;
    node: string;
    host: string;
    gpu: string;
    place: string;
    task: string;
    mem_total_bytes: number | null;
    power_limit_w: number | null;
    is_held: boolean;
  }

  interface JobTasksNow {
    ids: string[];
    act_on: string[];
    paused: number;
    suspended: number;
  }

  interface JobTotals {
    gpu_hours: number;
    util_pct: number | null;
    idle_hours: number | null;
    energy_kwh: number | null;
  }

  interface KeepView {
    until: number;
    because: string;
    by: string;
  }

  interface KubernetesClusterView {
    node: string;
    host: string;
    server: string;
    version: string;
    trouble: string;
    taken_at: number;
    is_stale: boolean;
    rights: ("cordon" | "delete" | "evict")[] | null;
    actions: string[];
    left_out: number;
    pods: KubernetesPodView[];
    nodes: KubernetesNodeView[];
  }

  interface KubernetesCordon {
    type: "kubernetes_cordon";
    node: string;
  }

  interface KubernetesDelete {
    type: "kubernetes_delete";
    namespace: string;
    pod: string;
    uid: string;
    grace_s: number | null;
  }

  interface KubernetesEvict {
    type: "kubernetes_evict";
    namespace: string;
    pod: string;
    uid: string;
  }

  interface KubernetesList {
    items: KubernetesClusterView[];
    ignored: string[];
  }

  interface KubernetesNodeView {
    name: string;
    host: string | null;
    gpus: number;
    allocated: number | null;
    is_ready: boolean;
    is_cordoned: boolean;
    may: string[];
  }

  interface KubernetesPodView {
    namespace: string;
    name: string;
    uid: string;
    controller: string;
    phase: string;
    reason: string;
    node: string | null;
    host: string | null;
    started_at: number | null;
    is_leaving: boolean;
    gpus: number | null;
    used: number | null;
    without_process: number | null;
    unknown: string;
    given: PodGpuView[] | null;
    may: string[];
  }

  interface KubernetesUncordon {
    type: "kubernetes_uncordon";
    node: string;
  }

  interface LadderRung {
    do: "end" | "limit" | "pause" | "suspend" | "tell";
    after_s: number;
  }

  interface LadderView {
    mode: string;
    state: string;
    next: string | null;
    due_at: number | null;
    why: string;
    confirm: boolean;
    task_ids: string[];
    rungs: RungView[];
    done: CompletedStepView[];
  }

  interface Layout {
    epoch: number;
    from: number;
    index: number[];
    instances: [number, number, string, string][];
    model: number[];
    models: string[];
    node: number[];
    nodes: [number, string, string, string?][];
    uuid: string[];
  }

  interface LeaseList {
    items: LeaseView[];
    next: string | null;
  }

  interface LeaseOfKernelPicture {
    gpus: LeasedGpuPicture[];
    note: string;
    state: "ended" | "held" | "waiting";
    until: number;
    words: string;
  }

  interface LeasePicture {
    command: string;
    gpus: string[];
    host: string;
    idle_since: number | null;
    share_pct: number;
    until: number;
  }

  interface LeaseRunTimeView {
    lease: string;
    owner: string;
    node: string;
    host: string;
    gpus: number;
    since: number;
    left: SpanView;
  }

  interface LeaseView {
    id: string;
    owner: string;
    node: string;
    host: string;
    gpus: string[];
    share_pct: number;
    state: string;
    since: number;
    until: number;
    idle_since: number | null;
    command: string;
    is_run: boolean;
    task_ids: string[];
    outsiders: OutsiderView[];
    misplaced: string[];
    why: string;
    cpus: number | null;
    ram_bytes: number | null;
    host_words: string;
  }

  interface LeasedGpuPicture {
    index: number;
    name: string;
    uuid: string;
  }

  interface Leases {
    epoch: number;
    names: string[];
    owner: Uint8Array;
    until: Uint8Array;
  }

  interface LimitRelease {
    type: "limit_off";
    gpu_uuid: string;
    what: "clocks" | "mps_share" | "power";
  }

  interface LimitsList {
    items: NodeLimitsView[];
  }

  interface LineSamples {
    absent: Uint8Array;
    at: Uint8Array;
    states: Uint8Array;
    uuid: string;
    values: Uint8Array;
  }

  interface Lines {
    at: number;
    gpus: LineSamples[];
  }

  interface MachinePicture {
    at: number;
    detail: string;
    driver: string | null;
    gpus: GpuPicture[];
    holds: string[];
    host: string;
    kind: "here";
    ram: RamPicture;
    reader: string;
    simulated: boolean;
    tasks: TaskPicture[];
    unseen: string;
  }

  interface MaintenanceList {
    items: MaintenanceView[];
  }

  interface MaintenanceView {
    node: string;
    host: string;
    by: string;
    because: string;
    since: number;
    until: number;
  }

  interface ManagedComputeMode {
    gpu_uuid: string;
    mode: "default" | "exclusive_process";
    by: string;
    reason: string;
    set_at: number;
    state: "drifted" | "in_force" | "not_in_force" | "unknown";
    words: string;
  }

  interface ManagedMigLayout {
    gpu_uuid: string;
    layout: string;
    wanted: [number, number][];
    before: string;
    by: string;
    reason: string;
    set_at: number;
    state: "applying" | "drifted" | "half_made" | "in_force" | "not_in_force" | "unknown";
    words: string;
  }

  interface MechanismView {
    name: string;
    there: NodeMechanismView[];
    not_there: Record<string, number>;
  }

  interface MemoryForecastList {
    at: number | null;
    items: GrowingMemoryView[];
    test: MemoryTestView;
  }

  interface MemoryTestView {
    forecasts: number;
    error_bytes: number;
    naive_error_bytes: number;
  }

  interface MigBoardView {
    node: string;
    host: string;
    gpu: string;
    index: number;
    is_on: boolean | null;
    now: string | null;
    instances: MigInstanceView[];
    wanted: ManagedMigLayout | null;
    service: "cordoned" | "diagnosing" | "drained" | "draining" | "in_service" | "needs_inspection" | "needs_reboot" | "resetting";
  }

  interface MigInstanceView {
    gpu: string;
    place: string;
    profile: string | null;
  }

  interface MigLayout {
    type: "mig_layout";
    gpu_uuid: string;
    layout: string;
  }

  interface MigList {
    items: MigBoardView[];
  }

  interface ModelView {
    model: string;
    gpus: number;
    free: number;
    leased: number;
    unavailable: number;
  }

  interface MonitoredNodeView {
    node_name: string;
    gpu_type: string;
    available_gpus: number;
    memory_per_gpu: number | null;
    utilization: number | null;
    total_gpus: number;
    leased_gpus: number;
    memory_usage: number | null;
  }

  interface MonitoringView {
    utilization: UtilizationView;
    nodes: MonitoredNodeView[];
    leases: number;
    waiting_claims: number;
    waiting_gpus: number;
    timestamp: string;
  }

  interface MpsClient {
    pid: number;
    uid: number | null;
    user: string | null;
    command: string | null;
    task_id: string | null;
    pct: number | null;
  }

  interface MpsDaemon {
    pipes: string;
    uid: number | null;
    user: string | null;
    is_alive: boolean;
    trouble: string;
    default_pct: number | null;
    default_priority: number | null;
    default_memory: [number, string][];
    servers: MpsServer[];
  }

  interface MpsFinding {
    code: string;
    weight: "advice" | "fault";
    cause: string;
    remedy: string;
    fixes: (MpsPercent | MpsMemory | MpsPriority | MpsPreset | MpsStart | MpsStop | MpsRestart | PowerCap | ClockLock | LimitRelease | ComputeMode | TimeSlice | Cordon | Drain | ReturnToService | GpuReset | GpuDiagnosis | MigLayout | SlurmCancel | SlurmHold | SlurmRelease | SlurmRequeue | SlurmSuspend | SlurmContinue | SlurmDrain | SlurmResume | KubernetesDelete | KubernetesEvict | KubernetesCordon | KubernetesUncordon)[];
  }

  interface MpsList {
    items: NodeMpsView[];
  }

  interface MpsMemory {
    type: "mps_memory";
    pipes: string;
    ordinal: number;
    mem_mib: number | null;
    server: number | null;
  }

  interface MpsPercent {
    type: "mps_percent";
    pipes: string;
    pct: number;
    server: number | null;
  }

  interface MpsPreset {
    type: "mps_preset";
    pipes: string;
    name: "high" | "low" | "normal";
    server: number | null;
  }

  interface MpsPriority {
    type: "mps_priority";
    pipes: string;
    priority: 0 | 1;
  }

  interface MpsRestart {
    type: "mps_restart";
    pipes: string;
  }

  interface MpsServer {
    pid: number;
    uid: number | null;
    user: string | null;
    status: string | null;
    pct: number | null;
    memory: [number, string][];
    clients: MpsClient[];
  }

  interface MpsStart {
    type: "mps_start";
    pipes: string;
  }

  interface MpsStop {
    type: "mps_stop";
    pipes: string;
  }

  interface MpsUsageView {
    node: string;
    start: number;
    end: number;
    step: number;
    t: number[];
    clients: (number | null)[];
    gpus: GpuMpsUsageView[];
  }

  interface NewClaimView {
    id: string;
  }

  interface NewestEvents {
    newest: EventView[];
  }

  interface NodeAuditView {
    node: string;
    host: string | null;
    audit_seq: number;
    audit_head: string;
    broken: string | null;
  }

  interface NodeCounts {
    live: number;
    silent: number;
    suspect: number;
  }

  interface NodeHealthView {
    word: "driver_hung" | "healthy" | "maintenance" | "no_driver" | "reader_failing" | "refused" | "silent" | "starting" | "suspect";
    why: string;
  }

  interface NodeHoldView {
    node: string;
    host: string | null;
    holds: string[];
    wanted: boolean;
    by: string | null;
    reason: string | null;
    since: number | null;
  }

  interface NodeLimitsView {
    node: string;
    host: string;
    taken_at: number;
    trouble: string;
    leases: TimedLimit[];
    modes: ManagedComputeMode[];
    layouts: ManagedMigLayout[];
    memory: GroupMemoryLimit[];
    unread: string;
  }

  interface NodeList {
    items: NodeView[];
    next: string | null;
  }

  interface NodeMechanismView {
    node: string;
    host: string;
    proof: string;
  }

  interface NodeMpsView {
    node: string;
    host: string;
    taken_at: number;
    trouble: string;
    daemons: MpsDaemon[];
    findings: MpsFinding[];
  }

  interface NodePicture {
    count: number;
    host: string;
    node: string;
    places: string[];
  }

  interface NodeQuotaHolderView {
    holder: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    used: number;
    most: number;
    here: number | null;
    is_over: boolean;
    is_whole: boolean;
    sentence: string;
    goes: number;
  }

  interface NodeQuotaList {
    items: NodeQuotaView[];
  }

  interface NodeQuotaView {
    quota: string;
    mode: "act" | "observe" | "warn";
    meaning: string;
    is_applied: boolean;
    is_in_force: boolean;
    proof: string;
    holders: NodeQuotaHolderView[];
  }

  interface NodeRefusalView {
    until: number;
    why: string;
  }

  interface NodeView {
    id: string;
    host: string;
    fingerprint: string;
    group: string;
    access: "approved" | "revoked" | "waiting";
    enrolled_at: number | null;
    takeovers: TakeoversView;
    state: "live" | "silent" | "suspect";
    last_heard_at: number | null;
    reader: ReaderView | null;
    backend: string;
    driver_version: string | null;
    agent_version: string;
    boot_id: string;
    gpus: number;
    clock_offset_s: number | null;
    frames: FramesView | null;
    holds: string[];
    platform: string;
    cost: AgentCostView | null;
    pending: number | null;
    dropped: number | null;
    links: GpuLinkView[] | null;
    unknown_types: string[];
    refused: NodeRefusalView | null;
    imported: boolean;
    site: string | null;
    link: string | null;
    host_load: HostLoadView | null;
    cuda_version: string | null;
    health: NodeHealthView | null;
    successor: string | null;
  }

  interface OrderResultView {
    items: CommandView[];
    plan: ActionPlanView | null;
  }

  interface OutOfService {
    slots: Uint8Array;
    states: Uint8Array;
    words: string[];
  }

  interface OutsiderView {
    gpu: string;
    task_id: string;
    user: string | null;
  }

  interface OwnerQuotaList {
    items: OwnerQuotaView[];
  }

  interface OwnerQuotaView {
    quota: string;
    mode: "act" | "observe" | "warn";
    meaning: string;
    because: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    holder: string;
    used: number;
    most: number;
    is_over: boolean;
    is_whole: boolean;
    sentence: string;
    goes: number;
    ladder: string;
    wanted: number;
    in_force: number;
  }

  interface OwnerView {
    uid?: number | null;
    parent_pid?: number | null;
    container?: string | null;
    container_name?: string | null;
    pod?: string | null;
    namespace?: string | null;
    slurm_job?: string | null;
    unit?: string | null;
    notebook?: string | null;
    launch?: string | null;
    rank?: number | null;
  }

  interface Owners {
    epoch: number;
    names: string[];
    owner: Uint8Array;
    paused: Uint8Array;
    slots?: Uint8Array;
  }

  interface PartView {
    name: string;
    bytes: number;
    formula: string;
  }

  interface PastBlockView {
    metric: string;
    unit: string;
    epoch: number;
    start: number;
    step: number;
    count: number;
    n: number;
    grain_s: number;
    seen: number[];
    gone: number[];
    cells: string;
    exact: string | null;
  }

  interface PastMomentView {
    at: number;
    epoch: number;
    n: number;
    names: string[];
    owner: string;
    lessees: string[];
    lessee: string;
    memory: string;
    free: string;
    gpus_free: number;
    wasted: PastWaste;
    queue: PastQueue | null;
  }

  interface PastQueue {
    waiting: number;
    owner: string | null;
    gpus: number | null;
  }

  interface PastTotalsView {
    at: number;
    nodes: number;
    gpus_seen: number;
    gpus_ok: number;
    util_mean_pct: number | null;
    power_w: number | null;
    mem_used_bytes: number | null;
    mem_total_bytes: number | null;
    throttled: number | null;
  }

  interface PastWaste {
    gpus: number;
    mem_bytes: number;
    slots: string;
    since: string;
    mem: string;
  }

  interface PodGpuView {
    uuid: string;
    index: number | null;
    has_process: boolean | null;
  }

  interface PolicyView {
    strategy: string;
    queue_order: string;
    default_term_s: number;
    pin_after_s: number;
    half_life_s: number;
    shares: Record<string, number>;
    is_preemptive: boolean;
    grace_s: number;
    least_run_s: number;
    weights: Record<string, number>;
    end_overdue: boolean;
    predicted_backfill: boolean;
    several_nodes: boolean;
    limits: Record<string, ClaimLimits>;
  }

  interface PoolGpuView {
    uuid: string;
    place: string;
    model: string;
    is_mig: boolean;
    mem_bytes: number | null;
    trouble: string;
  }

  interface PoolHealthView {
    status: "degraded" | "healthy";
    total_nodes: number;
    total_gpus: number;
    problems: GpuProblemView[];
    timestamp: string;
  }

  interface PoolNodeList {
    items: PoolNodeView[];
    next: string | null;
  }

  interface PoolNodeView {
    node: string;
    host: string;
    gpus: PoolGpuView[];
  }

  interface PoolStatusView {
    utilization: UtilizationView;
    available_nodes: SourceNodeView[];
    total_nodes: number;
    timestamp: string;
  }

  interface PoolView {
    is_on: boolean;
    strategy: string;
    queue_order: string;
    nodes: number;
    models: ModelView[];
    leases: number;
    waiting: number;
    waiting_gpus: number;
  }

  interface PowerCap {
    type: "power_cap";
    gpu_uuid: string;
    watts: number;
    lease_s: number;
  }

  interface PreviewItemView {
    task_ids: string[];
    node: string;
    host: string;
    job_id: string | null;
    owner: string | null;
    command: string | null;
    age_s: number | null;
    kind: string | null;
    manager: string | null;
    mem_used_bytes: number | null;
    gpus: GpuUseView[];
    processes: ProcessView[];
    bystanders: BystanderView[];
    keep: KeepView | null;
    warnings: string[];
    refusals: RefusalView[];
    changes: SettingChange[];
  }

  interface PreviewView {
    id: string;
    action: "cordon" | "diagnose_gpu" | "drain" | "end" | "kubernetes_cordon" | "kubernetes_delete" | "kubernetes_evict" | "kubernetes_uncordon" | "limit" | "lock_clocks" | "notify" | "pause" | "release_limit" | "reset_gpu" | "restart_mps" | "restore" | "resume" | "return_to_service" | "set_compute_mode" | "set_mig_layout" | "set_mps" | "set_power_cap" | "set_time_slice" | "slurm_cancel" | "slurm_continue" | "slurm_drain" | "slurm_hold" | "slurm_release" | "slurm_requeue" | "slurm_resume" | "slurm_suspend" | "start_mps" | "stop_mps" | "suspend" | "terminate_client";
    params: ActionParams;
    expires_at: number;
    items: PreviewItemView[];
    needs: ActionRequirementsView;
    refused: boolean;
  }

  interface ProblemDetails {
    type: string;
    title: string;
    status: number;
    detail: string;
  }

  interface ProcessView {
    pid: number;
    user: string | null;
    command: string | null;
    task_id: string | null;
    start_ticks: number;
  }

  interface QosPolicy {
    tenant: string;
    gpus: number | null;
    wait_s: number | null;
    throttled_pct: number | null;
    memory_gib: number | null;
  }

  interface QosReport {
    items: QosTenantView[];
    violations: QosViolation[];
  }

  interface QosTenantView {
    policy: QosPolicy;
    gpus: number | null;
    memory_gib: number | null;
    waiting: number | null;
    longest_wait_s: number | null;
    throttled_pct: number | null;
    unkept: ("gpus" | "memory" | "throttling" | "wait")[];
    week: QosWeek[];
    pending: ("gpus" | "memory" | "throttling" | "wait")[];
  }

  interface QosViolation {
    tenant: string;
    kind: "gpus" | "memory" | "throttling" | "wait";
    began_at: number;
    ended_at: number | null;
    worst: number;
    promised: number;
  }

  interface QosWeek {
    kind: "gpus" | "memory" | "throttling" | "wait";
    violations: number;
    seconds: number;
  }

  interface Quota {
    id: string;
    subject: string;
    scope: string;
    gpus: number | null;
    mem_bytes: number | null;
    gpu_hours: number | null;
    per: "day" | "week";
    max_age_s: number | null;
    count: "each" | "together";
    priority: number;
    mode: "act" | "observe" | "warn";
    ladder: LadderRung[];
    offline: "allow" | "wait";
    because: string;
  }

  interface QuotaBalanceView {
    quota: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    holder: string;
    used: number;
    most: number;
    is_over: boolean;
    is_whole: boolean;
    tasks: number;
    users: string[];
    sentence: string;
    offenders: QuotaOffenderView[];
  }

  interface QuotaCheck {
    problems: QuotaProblem[];
    meaning: string;
    holders: number;
    over: QuotaBalanceView[];
    nodes: number;
  }

  interface QuotaDeployment {
    node: string;
    host: string;
    is_applied: boolean;
    is_in_force: boolean;
    mechanism: string;
    proof: string;
  }

  interface QuotaHistoryView {
    quota: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    holder: string;
    step_s: number;
    t: number[];
    used: (number | null)[];
    most: (number | null)[];
    why: string;
  }

  interface QuotaList {
    generation: number;
    looked_at: number | null;
    items: QuotaView[];
    mechanisms: MechanismView[];
  }

  interface QuotaOffenderView {
    node: string;
    host: string;
    job_id: string;
    task_ids: string[];
    user: string | null;
    priority: number;
    started_at: number | null;
    ladder: string;
  }

  interface QuotaPicture {
    goes: number;
    holder: string;
    is_over: boolean;
    is_whole: boolean;
    ladder: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    mode: "act" | "observe" | "warn";
    most: number;
    quota: string;
    sentence: string;
    used: number;
  }

  interface QuotaProblem {
    field: string;
    message: string;
  }

  interface QuotaVersion {
    quota: Quota;
    meaning: string;
    generation: number;
    by: string;
    set_at: number;
    is_there: boolean;
  }

  interface QuotaVersionList {
    items: QuotaVersion[];
  }

  interface QuotaView {
    quota: Quota;
    meaning: string;
    generation: number;
    by: string;
    set_at: number;
    wanted: number;
    applied: number;
    in_force: number;
    nodes: QuotaDeployment[];
    balances: QuotaBalanceView[];
    over: number;
  }

  interface RamPicture {
    available: number | null;
    total: number | null;
  }

  interface RankMapData {
    metrics: Record<string, RankMetricData>;
    names: string[];
    t: number[];
  }

  interface RankMetricData {
    digits: number;
    full: (number | null)[];
    label: string;
    legend: string;
    per: number;
    rows: ((number | null)[])[];
    unit: string;
  }

  interface ReaderView {
    state: string;
    age_s: number | null;
    detail: string;
  }

  interface ReauthenticationView {
    fresh_until: number | null;
  }

  interface ReceiverList {
    items: ReceiverView[];
    has_mail: boolean;
    muted: number;
    kinds: ChannelView[];
  }

  interface ReceiverTestView {
    is_taken: boolean;
    words: string;
  }

  interface ReceiverView {
    id: string;
    name: string;
    kind: "alertmanager" | "custom" | "discord" | "heartbeat" | "jsm" | "mail" | "ntfy" | "owners" | "pagerduty" | "slack" | "teams" | "webhook";
    to: string;
    least: "crit" | "info" | "warn";
    rules: string[];
    has_token: boolean;
    token_file: string;
    is_on: boolean;
    template: string;
    headers: Record<string, string>;
    waiting: number;
    parked: number;
    sent: number;
    failed: number;
    unreached: number;
    dropped: number;
    told_at: number | null;
    error: string;
    error_at: number | null;
    test: ReceiverTestView | null;
    tested_at: number | null;
  }

  interface RefusalView {
    code: string;
    sentence: string;
  }

  interface RehearsalAlertView {
    target: string;
    node: string;
    host: string;
    place: string;
    users: string[];
    since: number;
    fired_at: number;
    ended_at: number | null;
    value: number | null;
    comebacks: number;
    acts: [string, number][];
  }

  interface RehearsalVictimView {
    target: string;
    node: string;
    host: string;
    users: string[];
    do: string;
    at: number;
    gpu_hours: number | null;
    why: string;
  }

  interface ReleaseView {
    success: boolean;
    lease_id: string;
    reason: string;
  }

  interface RepairList {
    items: RepairView[];
  }

  interface RepairView {
    node: string;
    host: string;
    gpu: string | null;
    index: number | null;
    state: "cordoned" | "diagnosing" | "drained" | "draining" | "needs_inspection" | "needs_reboot" | "resetting";
    says: string;
    by: string;
    reason: string;
    began_at: number;
    since: number;
    until: number | null;
    is_overdue: boolean;
    seen: string;
    may: string[];
  }

  interface Report {
    by: string;
    start: number;
    end: number;
    since: number | null;
    price_gpu_hour: number | null;
    price_kwh: number | null;
    items: ReportItem[];
    total: ReportItem;
    coverage: number | null;
    co2_g_per_kwh: number | null;
    backfilling: number;
    joining: boolean;
  }

  interface ReportItem {
    of: string | null;
    name: string | null;
    gpu_hours: number;
    util_pct: number | null;
    util_share: number;
    idle_hours: number | null;
    idle_share: number | null;
    mem_used_bytes: number | null;
    energy_kwh: number | null;
    energy_share: number;
    cost: number | null;
    mem_max_bytes: number | null;
    co2_kg: number | null;
    idle_cost: number | null;
    sm_pct: number | null;
    sm_share: number;
  }

  interface RequesterView {
    kind: string;
    name: string;
    approved_by: string | null;
  }

  interface ReturnToService {
    type: "return";
    gpu_uuid: string;
  }

  interface Rule {
    id: string;
    title: string;
    signal: string;
    fire: string;
    of: "fleet" | "gpu" | "job" | "node" | "owner" | "task";
    scope: string;
    where: string[];
    clear: string;
    for: string;
    keep_firing_for: string;
    no_data: "alert" | "hold" | "ok";
    severity: "crit" | "info" | "warn";
    min_coverage: number;
    max_gap: string;
    ladder: RuleStep[];
    mode: "auto" | "confirm" | "dry_run" | "observe";
    cooldown: string;
    budget: RuleBudget;
    group_by: ("gpu" | "node" | "owner" | "rule")[];
    inhibited_by: string[];
    owner: string;
    runbook: string;
    expires: string;
    when_refused: "skip" | "stop";
    cordon: boolean;
  }

  interface RuleBudget {
    acts: number;
    within: string;
  }

  interface RuleCheck {
    problems: RuleProblemView[];
    targets: number;
    matching: number;
    matches: string[];
    names: string[];
    rule: Rule | null;
    yaml: string;
    basis: "grows" | "newest" | "now";
    refused: RungCheck[];
    warning: string;
  }

  interface RuleList {
    items: RuleView[];
    proof_h: number;
  }

  interface RuleProblemView {
    field: string;
    message: string;
    at: number | null;
  }

  interface RuleStep {
    do: "end" | "limit" | "pause" | "tell";
    after: string;
  }

  interface RuleView {
    rule: Rule;
    number: number;
    version: string;
    mode: "auto" | "confirm" | "dry_run" | "observe";
    is_watched: boolean;
    targets: number;
    pending: number;
    firing: number;
    resolving: number;
    no_data: number;
    cannot: number;
    why_not: string;
    warning: string;
    unit: string | null;
    fires_at: number | null;
  }

  interface RunTimeList {
    items: LeaseRunTimeView[];
    test: RunTimeTestView | null;
    why: string;
  }

  interface RunTimeTestView {
    runs: number;
    off_by: number;
    naive_off_by: Record<string, number>;
    inside_pct: number;
  }

  interface RungCheck {
    step: number;
    do: string;
    refused: number;
    targets: number;
    sentence: string;
  }

  interface RungView {
    do: string;
    after_s: number;
  }

  interface SeriesBand {
    mean: (number | null)[];
    min: (number | null)[];
    max: (number | null)[];
  }

  interface SeriesView {
    gpu: string;
    metric: string;
    unit: string;
    start: number;
    end: number;
    step: number;
    t: number[];
    mean: (number | null)[];
    min: (number | null)[];
    max: (number | null)[];
    also: Record<string, SeriesBand>;
    beside: Record<string, Record<string, SeriesBand>>;
  }

  interface ServingView {
    engine: string;
    trouble: string;
    prompt_tokens_per_s: number | null;
    generated_tokens_per_s: number | null;
    running: number | null;
    waiting: number | null;
    cache_pct: number | null;
    first_token_s: number | null;
    token_s: number | null;
    request_s: number | null;
    joules_per_million_tokens: number | null;
  }

  interface SessionList {
    items: SessionView[];
    next: string | null;
  }

  interface SessionView {
    id: string;
    user: string;
    how: string;
    from: string;
    created_at: number;
    last_used_at: number;
    ends_at: number;
    is_this: boolean;
  }

  interface SettingChange {
    what: string;
    before: string;
    after: string;
  }

  interface SetupView {
    success: boolean;
    node_name: string | null;
    lease_id: string | null;
    gpu_uuids: string[];
    expires_at: string | null;
    environment: Record<string, string>;
    host_words: string;
    reason: string;
    code: string[];
  }

  interface SignInList {
    items: SignInView[];
    next: string | null;
  }

  interface SignInView {
    at: number;
    name: string;
    from: string;
    how: string;
    outcome: string;
  }

  interface SilenceList {
    items: SilenceView[];
  }

  interface SilenceView {
    id: string;
    by: string;
    because: string;
    begins: number;
    until: number;
    rule: string;
    node: string;
    host: string;
    target: string;
    user: string;
    is_on: boolean;
    ended_at: number | null;
  }

  interface SimulationView {
    claims: number;
    since: number;
    items: StrategyOutcome[];
  }

  interface SiteAlertList {
    items: SiteAlertView[];
    unknown: string[];
  }

  interface SiteAlertView {
    site: string;
    id: string;
    rule: string;
    title: string;
    severity: "crit" | "info" | "warn";
    state: string;
    since: number;
    host: string;
    place: string;
    why: string;
    link: string;
  }

  interface SiteCounts {
    gpus: number;
    left_out: number;
    name: string;
    nodes: number;
    since: number | null;
    state: "away" | "connecting" | "live";
    url: string;
    why: string;
  }

  interface SiteList {
    items: SiteView[];
  }

  interface SiteView {
    name: string;
    url: string;
    state: "away" | "connecting" | "live";
    since: number;
    why: string;
    nodes: number;
    gpus: number;
    left_out: number;
  }

  interface SlurmCancel {
    type: "slurm_cancel";
    job: string;
    submitted_at: number;
  }

  interface SlurmClusterView {
    node: string;
    host: string;
    cluster: string;
    version: string;
    account: string;
    rights: "all" | "own" | "unknown";
    hidden: string;
    trouble: string;
    taken_at: number;
    is_stale: boolean;
    actions: string[];
    left_out: number;
    jobs: SlurmJobView[];
    nodes: SlurmNodeView[];
  }

  interface SlurmContinue {
    type: "slurm_continue";
    job: string;
    submitted_at: number;
  }

  interface SlurmDrain {
    type: "slurm_drain";
    node: string;
  }

  interface SlurmHold {
    type: "slurm_hold";
    job: string;
    submitted_at: number;
  }

  interface SlurmJobView {
    id: string;
    number: number;
    submitted_at: number;
    state: string;
    user: string | null;
    name: string;
    reason: string;
    partition: string | null;
    started_at: number | null;
    limit_s: number | null;
    gpus: number | null;
    used: number | null;
    without_process: number | null;
    unknown: string;
    nodes: string[];
    may: string[];
  }

  interface SlurmList {
    items: SlurmClusterView[];
    ignored: string[];
  }

  interface SlurmNodeView {
    name: string;
    host: string | null;
    states: string[];
    gpus: number | null;
    allocated: number | null;
    partitions: string;
    reason: string;
    may: string[];
  }

  interface SlurmRelease {
    type: "slurm_release";
    job: string;
    submitted_at: number;
  }

  interface SlurmRequeue {
    type: "slurm_requeue";
    job: string;
    submitted_at: number;
  }

  interface SlurmResume {
    type: "slurm_resume";
    node: string;
  }

  interface SlurmSuspend {
    type: "slurm_suspend";
    job: string;
    submitted_at: number;
  }

  interface SourceNodeList {
    nodes: SourceNodeView[];
    total_nodes: number;
    timestamp: string;
  }

  interface SourceNodeView {
    node_name: string;
    gpu_type: string;
    available_gpus: number;
    memory_per_gpu: number | null;
    utilization: number | null;
  }

  interface SpanView {
    p25_s: number;
    p50_s: number;
    p75_s: number;
    p90_s: number;
    runs: number;
    of: string;
  }

  interface SpeedView {
    tokens_per_s: [number, number];
    formula: string;
    days: [number, number] | null;
  }

  interface StormTripView {
    source: string;
    trip: BrakeTrip;
  }

  interface StrategyList {
    items: StrategyView[];
    orders: StrategyView[];
  }

  interface StrategyOutcome {
    strategy: string;
    wait_p50_s: number;
    wait_p95_s: number;
    makespan_s: number;
    used_pct: number;
    never: number;
  }

  interface StrategyView {
    name: string;
    words: string;
    is_used: boolean;
  }

  interface TakeoversView {
    count: number;
    last_at: number | null;
  }

  interface TaskGpuUseView {
    uuid: string;
    mem_used_bytes: number | null;
    sm_pct: number | null;
    place: string | null;
  }

  interface TaskGroup {
    key: string;
    user: string | null;
    host: string | null;
    command: string | null;
    job_id: string | null;
    tasks: number;
    nodes: number;
    gpus: number;
    mem_used_bytes: number | null;
    sm_pct: number | null;
    started_at: number | null;
    idle_s: number | null;
    util_pct: number | null;
    mem_total_bytes: number | null;
    first_job: string | null;
    act_on: string[];
    paused: number;
    suspended: number;
    state: "paused" | "running" | "suspended" | "uninterruptible" | "zombie" | null;
    manager: string | null;
    owner: OwnerView;
  }

  interface TaskList {
    items: TaskView[];
    next: string | null;
    total: number;
    groups: TaskGroup[] | null;
  }

  interface TaskPicture {
    child: boolean;
    command: string | null;
    gpus: string[];
    id: string;
    kernel: boolean;
    mem: number | null;
    node: string | null;
    pid: number;
    since: number | null;
    sm: number | null;
    state: "paused" | "running" | "uninterruptible" | "zombie" | null;
    user: string | null;
  }

  interface TaskQuotaList {
    items: TaskQuotaView[];
  }

  interface TaskQuotaView {
    quota: string;
    limit: "gpu_hours" | "gpus" | "max_age_s" | "mem_bytes";
    mode: "act" | "observe" | "warn";
    meaning: string;
    why: string;
    sentence: string | null;
    is_over: boolean;
    goes: boolean;
  }

  interface TaskView {
    id: string;
    node: string;
    host: string;
    pid: number;
    started_at: number | null;
    user: string | null;
    command: string | null;
    command_is: "program" | "whole";
    gpus: TaskGpuUseView[];
    mem_used_bytes: number | null;
    sm_pct: number | null;
    state: "paused" | "running" | "suspended" | "uninterruptible" | "zombie" | null;
    manager: string | null;
    kind: "compute" | "graphics" | "mps_client" | "mps_server" | null;
    job_id: string | null;
    owner: OwnerView;
    keep: KeepView | null;
    idle_s: number | null;
    on_host: HostUseView | null;
    checkpoints: CheckpointsView | null;
    serving: ServingView | null;
    permits: ("end" | "limit" | "notify" | "pause" | "restore" | "resume" | "suspend" | "terminate_client")[];
    refuses: Record<string, string>;
  }

  interface Team {
    name: string;
    users?: string[];
    groups?: string[];
    patterns?: string[];
    price_gpu_hour?: number | null;
  }

  interface TeamList {
    items: Team[];
    members: Record<string, string[]>;
  }

  interface TimeSlice {
    type: "time_slice";
    gpu_uuid: string;
    length: "default" | "long" | "medium" | "short";
  }

  interface TimedLimit {
    lease_id: string;
    gpu_uuid: string;
    what: "clocks" | "mps_share" | "power";
    wanted: number[];
    before: number[];
    by: string;
    reason: string;
    began_at: number;
    ends_at: number;
    boot_id: string;
    ends_boottime_s: number;
    state: "beginning" | "drifted" | "in_force" | "not_in_force" | "unknown";
    seen: number | null;
    seen_at: number | null;
    words: string;
    pipes: string;
    server: number;
  }

  interface TokenList {
    items: TokenView[];
    next: string | null;
  }

  interface TokenView {
    id: string;
    name: string;
    role: "admin" | "operator" | "user" | "viewer";
    groups: string[];
    unix_names: string[];
    created_at: number;
    created_by: string;
    expires_at: number;
    last_used_at: number | null;
    token?: string | null;
  }

  interface Totals {
    at: number;
    epoch: number;
    free: Uint8Array;
    gpus: GpuCounts;
    healthy: number;
    hot: number | null;
    mem_total_bytes: number | null;
    mem_used_bytes: number | null;
    memory: Uint8Array;
    nodes: NodeCounts;
    power_w: number | null;
    service: OutOfService;
    simulated: number;
    sites?: SiteCounts[];
    tasks: number;
    throttled: number | null;
    util_mean_pct: number | null;
    wasted: WastedNow;
  }

  interface UsageItem {
    t: number;
    of: string | null;
    gpu_s: number;
    idle_s: number;
    util_pct: number | null;
    mem_used_bytes: number | null;
    mem_max_bytes: number | null;
    energy_j: number | null;
    sm_pct: number | null;
  }

  interface UsageList {
    by: string;
    bucket: number;
    start: number;
    end: number;
    items: UsageItem[];
  }

  interface UserList {
    items: UserView[];
    next: string | null;
  }

  interface UserView {
    name: string;
    role: "admin" | "operator" | "user" | "viewer";
    groups: string[];
    unix_names: string[];
    created_at: number;
    last_sign_in_at: number | null;
    has_password: boolean;
    link?: string | null;
  }

  interface UtilizationView {
    gpu_utilization: number | null;
    gpu_memory_usage: number | null;
  }

  interface ValidationView {
    valid: boolean;
    available_now: boolean;
    nodes: string[];
    available_nodes: string[];
    waiting_claims: number;
    reason: string;
  }

  interface VerificationView {
    exited: boolean | null;
    memory_returned: boolean | null;
    bystanders_alive: boolean | null;
    mem_before_bytes: number | null;
    mem_after_bytes: number | null;
    vanished: string[];
    survivors: number[];
    applied: boolean | null;
    in_force: boolean | null;
    checkpoint_at: number | null;
  }

  interface WaitList {
    items: WaitView[];
    test: RunTimeTestView | null;
    why: string;
  }

  interface WaitView {
    size: string;
    waits: number;
    wait: SpanView | null;
  }

  interface WaitingNotificationList {
    items: WaitingNotificationView[];
    total: number;
  }

  interface WaitingNotificationView {
    id: string;
    receiver: string;
    title: string;
    at: number;
    attempts: number;
    next_at: number;
    error: string;
    parked_at: number | null;
    state: "parked" | "waiting";
  }

  interface WastedNow {
    gpu_hours_today: number | null;
    gpus: number;
    mem: Uint8Array;
    mem_bytes: number;
    since: Uint8Array;
    slots: Uint8Array;
  }

  interface WhyNotFreeView {
    reason: "busy" | "error" | "leased" | "lost" | "maintenance" | "managed" | "memory" | "no_reading" | "out_of_service" | "paused" | "row_remap" | "split" | "stale" | "task" | "unknown";
    why: string;
  }
}
