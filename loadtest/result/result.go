// Package result is what a load test found out, as the JSON file holds it and the report shows it.
//
// Shares are fractions of all hits of the measured part of a run; the warm-up is in none of the
// figures but Conservation's. A figure that a run does not have (a simulation has no latency) is
// null.
package result

// Version of the format. Fields are added without a new one; renaming one takes a new one.
const Version = 1

// File is everything that one command measured.
type File struct {
	Version int     `json:"version"`
	Offpath string  `json:"offpath"` // the version of the program
	Machine Machine `json:"machine"`
	Runs    []Run   `json:"runs"`
}

// Machine is where it was measured.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"` // that Go may use
	Go    string `json:"go"`
}

// Modes of a run.
const (
	Live      = "live"
	Simulated = "sim"
)

// Run is one scenario with one set of parameters.
type Run struct {
	Scenario    string `json:"scenario"`
	Variant     string `json:"variant,omitempty"` // of a scenario that consists of several runs
	Description string `json:"description"`
	Mode        string `json:"mode"`
	Params      Params `json:"params"`
	// Interrupted says that the run was stopped before its end; the figures are of what had been.
	Interrupted bool `json:"interrupted"`
	// MeasuredSeconds is how long the measured part was, in the run's own time.
	MeasuredSeconds float64 `json:"measured_seconds"`

	// Hits of the measured part. PlannedHits were due in it (0 in a simulation, which is never
	// late), and MissedHits of them asked only after its end: a machine that could not keep up.
	Hits           int64 `json:"hits"`
	PlannedHits    int64 `json:"planned_hits,omitempty"`
	MissedHits     int64 `json:"missed_hits,omitempty"`
	Admitted       int64 `json:"admitted"`
	Denied         int64 `json:"denied"`
	OracleAdmitted int64 `json:"oracle_admitted"`
	Keys           int64 `json:"keys"` // distinct ones that were hit

	Accuracy
	// Estimate is what the fleet's own metrics would say of that; of a simulation only.
	Estimate Estimate `json:"estimate,omitzero"`

	// DecisionNS is the time of one decision, in nanoseconds, with ClockNS of the clock's own cost
	// in it.
	DecisionNS  Latency  `json:"decision_ns"`
	ClockNS     *float64 `json:"clock_ns"`
	OfferedRate float64  `json:"offered_per_second"`
	// DecisionsPerSecond is how many decisions all cores made when asked as fast as they could,
	// after the measured part, with the fleet at work behind; PerCore the same divided by the
	// cores.
	DecisionsPerSecond        *float64 `json:"decisions_per_second"`
	DecisionsPerSecondPerCore *float64 `json:"decisions_per_second_per_core"`
	// FullSpeedAdmittedShare is how many of those were admitted: a limit is soon used up at that
	// pace, and the rest are denials.
	FullSpeedAdmittedShare *float64 `json:"full_speed_admitted_share"`
	// ClockOffsetMS is how far the fleet's time, by which hits are counted and judged, was ahead of
	// this machine's.
	ClockOffsetMS float64 `json:"clock_offset_ms"`
	// LateMS is how far behind its plan the load generator itself was.
	LateMS *Lateness `json:"generator_late_ms"`

	RefreshLagMS Lag `json:"refresh_lag_ms"`
	// Traffic is what went over the network; of a simulation only.
	Traffic Traffic `json:"traffic_per_second,omitzero"`
	Cost            // of counting
	Memory  Memory  `json:"memory"`

	Conservation Conservation `json:"conservation"`

	Timeline Timeline `json:"timeline"`
	// Sweep is by simulation; empty if there was none. SweepSeconds is the length of its measured
	// part, less than the run's where that would take long.
	Sweep        []SweepStep `json:"flush_sweep"`
	SweepSeconds float64     `json:"flush_sweep_s,omitempty"`
}

// Params are what a run was asked for.
type Params struct {
	Checkers    int     `json:"checkers"`
	Aggregators int     `json:"aggregators"`
	Rules       []Rule  `json:"rules"`
	Limit       int64   `json:"limit"` // of the first rule
	WindowMS    float64 `json:"window_ms"`
	Load        float64 `json:"load"` // times the limit, in steady load; 0 if the scenario has none
	FlushMS     float64 `json:"flush_ms"`
	EarlyFlush  bool    `json:"early_flush"`
	Keys        int     `json:"keys"`
	Cost        string  `json:"cost,omitempty"` // of a request, of the first stream; "" for 1
	WarmupS     float64 `json:"warmup_s"`
	DurationS   float64 `json:"duration_s"` // of the measured part
	Seed        uint64  `json:"seed"`
	DelayMS     float64 `json:"delay_ms"`
	JitterMS    float64 `json:"jitter_ms"`
	Store       string  `json:"store"` // memory or redis
	// Faults of a simulation, as its flags say them; "" for none.
	Faults string `json:"faults,omitempty"`
	// Speed of a replay, how many times the log's; 0 otherwise.
	Speed float64 `json:"speed,omitempty"`
}

// Rule is one limit of a run.
type Rule struct {
	Name      string  `json:"name"`
	Limit     int64   `json:"limit"`
	WindowMS  float64 `json:"window_ms"`
	Buckets   int     `json:"buckets"`
	Algorithm string  `json:"algorithm"`
	// Enforcement is async or strict.
	Enforcement string `json:"enforcement"`
}

// Accuracy is how the decisions compare with those of an exact limiter that sees every hit of every
// checker in order.
type Accuracy struct {
	// OverWorstWindow is the largest value, over time and keys, of the rule's own count of all
	// admitted hits ÷ limit − 1. It is negative if no key ever reached its limit.
	OverWorstWindow float64 `json:"over_worst_window"`
	// Over999 is what all but one in 1,000 windows of all keys stay within, of those with an
	// admitted hit.
	Over999 *float64 `json:"over_window_p999"` // nil in results from before there was one
	// OracleOverWorstWindow is OverWorstWindow of the exact limiter: never above 0.
	OracleOverWorstWindow float64 `json:"oracle_over_worst_window"`
	// RollingOverWorst is the largest number of admitted hits in any stretch of one window's length
	// ÷ limit − 1. An exact limiter with few buckets exceeds its limit by this count:
	// OracleRollingOverWorst.
	RollingOverWorst       float64 `json:"rolling_over_worst"`
	OracleRollingOverWorst float64 `json:"oracle_rolling_over_worst"`
	// OverTotal is admitted ÷ what the exact limiter admitted − 1.
	OverTotal float64 `json:"over_total"`
	// WrongAllowShare and FalseDenialShare are hits admitted although the rule's own count of all
	// admitted hits had reached limit + band, and hits denied although count + 1 ≤ limit − band,
	// with band = max(1 hit, 2 % of the limit). The others are the same with no band. A request
	// that costs c is c hits, which are all right or all wrong, as the last of them is.
	WrongAllowShare       float64 `json:"wrong_allow_share"`
	FalseDenialShare      float64 `json:"false_denial_share"`
	WrongAllowShareExact  float64 `json:"wrong_allow_share_band0"`
	FalseDenialShareExact float64 `json:"false_denial_share_band0"`
}

// Estimate is what checkers and aggregators reckon by themselves, who see no hit of another before
// it is reported: the figures of Accuracy of the same names. OverWorstWindow is 0 where no limit
// was exceeded.
type Estimate struct {
	OverWorstWindow  float64 `json:"over_worst_window"`
	WrongAllowShare  float64 `json:"wrong_allow_share"`
	FalseDenialShare float64 `json:"false_denial_share"`
	// Unheard is which part of a window's hits aggregators may not have heard of when they
	// reckoned: so much more may OverWorstWindow be.
	Unheard float64 `json:"unheard"`
}

// Latency is a distribution in nanoseconds.
type Latency struct {
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
	// Curve is the whole distribution, for the chart.
	Curve []Quantile `json:"curve,omitempty"`
}

// Quantile is one point of a distribution: so many percent are at or below the value.
type Quantile struct {
	Percent float64 `json:"percent"`
	Value   float64 `json:"value"`
}

// Lateness is how late a load generator asked, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Lag is a time from a hit's admission on one checker until another's count contained it, in
// milliseconds, for keys above half their limit and checkers that hold them.
type Lag struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
	// Samples measured, and Never those whose bucket had left the window before any word of the
	// hit. Truncated says that there was more to listen to than could be kept, so that the end is
	// not in it.
	Samples   int64 `json:"samples"`
	Never     int64 `json:"never"`
	Truncated bool  `json:"truncated"`
}

// Cost is what counting took.
type Cost struct {
	ReportsPer1000       float64 `json:"reports_per_1000_hits"`
	ReportBytesPer1000   float64 `json:"report_bytes_per_1000_hits"`
	StoreCommandsPer1000 float64 `json:"store_commands_per_1000_hits"`
	// StoreHeartbeatsPer1000 are those among them that came with time, not with hits.
	StoreHeartbeatsPer1000 float64 `json:"store_heartbeats_per_1000_hits"`
	// RedisCallsPer1000 are the commands that Redis counts itself, those inside scripts included.
	RedisCallsPer1000 *float64 `json:"redis_calls_per_1000_hits"`
	// RefreshBytes are what one checker received per second, on average: answers and alarms.
	RefreshBytes float64 `json:"refresh_bytes_per_checker_second"`
}

// Traffic is what all checkers, and all aggregators, sent and heard per second. NATS takes in what
// both send, and hands out what both hear: an alarm comes in once, and goes out to each checker.
type Traffic struct {
	Checkers    Flow `json:"checkers"`
	Aggregators Flow `json:"aggregators"`
	NATS        Flow `json:"nats"` // sent is what it hands out
}

// Flow is messages, and the bytes of their payloads.
type Flow struct {
	Sent       float64 `json:"messages_sent"`
	SentBytes  float64 `json:"bytes_sent"`
	Heard      float64 `json:"messages_heard"`
	HeardBytes float64 `json:"bytes_heard"`
}

// Memory is bytes per key, the key's text included.
type Memory struct {
	CheckerBytes *float64 `json:"checker_bytes_per_key"`
	StoreBytes   *float64 `json:"store_bytes_per_key"`
}

// Conservation says what became of every admitted hit of the whole run, warm-up included.
type Conservation struct {
	Admitted int64 `json:"admitted"` // as the callers were told
	Charged  int64 `json:"charged"`  // as the checkers say
	Stored   int64 `json:"stored"`   // the sum of what follows
	Counted  int64 `json:"counted"`
	Late     int64 `json:"late"`
	Refused  int64 `json:"refused"`
	Overflow int64 `json:"overflow"`
	Lost     int64 `json:"lost"`
	Holds    bool  `json:"holds"`
}

// Check sets what follows from the rest.
func (c *Conservation) Check() {
	c.Stored = c.Counted + c.Late + c.Refused + c.Overflow + c.Lost
	c.Holds = c.Admitted == c.Charged && c.Charged == c.Stored
}

// Timeline is, for equal steps of the measured part, the largest count of any key at any moment in
// the step, as a share of its limit.
type Timeline struct {
	StepMS float64   `json:"step_ms"`
	Ours   []float64 `json:"ours"`
	Oracle []float64 `json:"oracle"`
}

// SweepStep is the same scenario simulated with one flush interval.
type SweepStep struct {
	FlushMS          float64 `json:"flush_ms"`
	OverWorstWindow  float64 `json:"over_worst_window"`
	WrongAllowShare  float64 `json:"wrong_allow_share"`
	FalseDenialShare float64 `json:"false_denial_share"`
	ReportsPer1000   float64 `json:"reports_per_1000_hits"`
}
