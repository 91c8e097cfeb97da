package lint

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mostExposed is how much systemd-analyze may find a unit to be exposed, of 10.
const mostExposed = 2.0

// TestUnits: systemd finds nothing wrong with the units, and the commands nothing with the
// arguments.
func TestUnits(t *testing.T) {
	for _, command := range []string{"checker", "aggregator"} {
		installed := "/usr/local/bin/offpath-" + command
		text := file(t, "../systemd/offpath-"+command+".service")
		start := regexp.MustCompile(`(?m)^ExecStart=(\S+) ?(.*)$`).FindStringSubmatch(text)
		if start == nil || start[1] != installed {
			t.Errorf("%s: ExecStart %q", command, start)
			continue
		}
		env := map[string]string{}
		for _, v := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(text, -1) {
			env[v[1]] = v[2]
		}
		parses(t, command, strings.Fields(start[2]), env)
		for _, setting := range []string{"Restart=always", "StartLimitIntervalSec=0", "TimeoutStopSec=30"} {
			if !strings.Contains(text, "\n"+setting+"\n") {
				t.Errorf("%s: %s is missing, without which it may stay down, or be killed as it delivers", command, setting)
			}
		}
		unit := verify(t, command, text)
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", "--no-pager", unit).CombinedOutput()
		level := regexp.MustCompile(`exposure level for \S+: ([\d.]+)`).FindSubmatch(out)
		if err != nil || level == nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		if n, err := strconv.ParseFloat(string(level[1]), 64); err != nil || n > mostExposed {
			t.Errorf("%s: exposed by %s of 10\n%s", command, level[1], out)
		}
	}
}

// verify asks systemd about a unit, and returns where it has written it.
func verify(t *testing.T, command, text string) (unit string) {
	t.Helper()
	binaries, err := commands()
	must(t, err)
	text = strings.ReplaceAll(text, "/usr/local/bin/offpath-"+command, filepath.Join(binaries, command)) // which has to be there
	unit = write(t, "offpath-"+command+".service", text)
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(out) > 0 { // unknown settings are warnings, with status 0
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	return unit
}

// TestDropInsHandOverFiles: each drop-in of README.md adds to a unit that systemd takes, its flags
// are the command's, and each file that a flag names is a credential that it loads, among them the
// key of receipts.
func TestDropInsHandOverFiles(t *testing.T) {
	dropIns := regexp.MustCompile(`(?s)offpath-(\w+)\.service\.d/files\.conf <<'END'\n(.*?)\nEND`).FindAllStringSubmatch(file(t, "../README.md"), -1)
	var flags []string
	for _, d := range dropIns {
		command, text := d[1], d[2]
		env := map[string]string{}
		for _, v := range regexp.MustCompile(`(OFFPATH_\w+)=(\S+)`).FindAllStringSubmatch(text, -1) {
			env[v[1]] = v[2]
			flags = append(flags, command+" "+v[1])
			if name, isFile := strings.CutPrefix(v[2], "%d/"); isFile && !strings.Contains(text, "\nLoadCredential="+name+":/") {
				t.Errorf("%s: nothing loads %s", command, name)
			}
		}
		parses(t, command, nil, env)
		verify(t, command, strings.Replace(file(t, "../systemd/offpath-"+command+".service"), "[Service]", text, 1))
	}
	want := "checker OFFPATH_NATS_USER checker OFFPATH_NATS_PASSWORD_FILE checker OFFPATH_RECEIPT_KEY_FILE aggregator OFFPATH_ENTRIES_SIGNING_KEY_FILE"
	if got := strings.Join(flags, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestGrafanaFindsItsFiles: what provisioning names is where compose.yaml mounts it.
func TestGrafanaFindsItsFiles(t *testing.T) {
	mounted := ""
	for _, v := range project(t).Services["grafana"].Volumes {
		mounted += fmt.Sprintln(filepath.Base(v.Source), v.Target)
	}
	provider := file(t, "../grafana/provisioning/dashboards/offpath.yaml")
	path := regexp.MustCompile(`path: ([\w/]+)`).FindStringSubmatch(provider)
	if path == nil || !strings.Contains(mounted, "grafana "+path[1]+"\n") || !strings.Contains(mounted, "provisioning /etc/grafana/provisioning\n") {
		t.Errorf("%q of\n%s", path, mounted)
	}
	if url := "http://prometheus:9090"; !strings.Contains(file(t, "../grafana/provisioning/datasources/prometheus.yaml"), url) {
		t.Errorf("the source is not %s", url)
	}
}
