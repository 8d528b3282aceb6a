package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

var update = flag.Bool("update", false, "write docs/command.md and the expected output of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"brellium": main})
}

// TestScripts runs a script for each command. Besides the commands of package
// testscript they have:
//
//	emulator [audits=N] [latency=D] [remaining=N] [seed]
//	    starts an emulator and sets the credentials in the environment
//	fault OPERATION STATUS [CODE]
//	    makes every request of an operation fail; without a code with a bare 403
//	no-faults
//	    ends all faults
//	slow-storage D
//	    makes the storage host take so long to read a file
//	invite-fails
//	    makes the next invitation fail with 502 INVITE_FAILED
//	exits CODE brellium ARGS…
//	    runs the command and expects this exit code
//	signal SIGNAL OPERATION N brellium ARGS…
//	    runs the command, sends it the signal when the emulator has received N
//	    requests of the operation, and waits for it; its output is in the files
//	    signal.stdout and signal.stderr, and its exit code in signal.code; if
//	    OPERATION is "output", it is sent after N lines on standard error
//	requests OPERATION N
//	    expects that the emulator has received so many requests
//	unique FILE… N
//	    expects N audits in the files together, each once
//	covers FILE… N
//	    expects N different audits in the files together
//	uploaded N
//	    expects N documents, each stored exactly once
//	invitations EMAIL N
//	    expects that so many invitations were sent
//	mode FILE
//	    expects that only the owner can read the file
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BRELLIUM_CLIENT_ID", "")
			env.Setenv("TERM", "xterm")
			env.Values[emulatorKey{}] = new(*brelliumtest.Emulator)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"emulator": func(ts *testscript.TestScript, _ bool, args []string) { startEmulator(ts, args) },
			"fault": func(ts *testscript.TestScript, _ bool, args []string) {
				status, err := strconv.Atoi(args[1])
				ts.Check(err)
				fault := brelliumtest.Blocked()
				if len(args) > 2 {
					fault = brelliumtest.Status(status, args[2])
				}
				emulatorOf(ts).Inject(args[0], fault.Forever())
			},
			"slow-storage": func(ts *testscript.TestScript, _ bool, args []string) {
				d, err := time.ParseDuration(args[0])
				ts.Check(err)
				emulatorOf(ts).Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(d).Forever())
			},
			"invite-fails": func(ts *testscript.TestScript, _ bool, _ []string) {
				emulatorOf(ts).Inject(brelliumtest.OpUserCreate, brelliumtest.InviteFailed())
			},
			"exits":  exits,
			"signal": sendSignal,
			"requests": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := emulatorOf(ts).Count(args[0]); strconv.Itoa(got) != args[1] {
					ts.Fatalf("%d requests of %s", got, args[0])
				}
			},
			"unique":    func(ts *testscript.TestScript, _ bool, args []string) { audits(ts, args, false) },
			"covers":    func(ts *testscript.TestScript, _ bool, args []string) { audits(ts, args, true) },
			"no-faults": func(ts *testscript.TestScript, _ bool, _ []string) { emulatorOf(ts).ClearFaults() },
			"uploaded":  uploaded,
			"invitations": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := emulatorOf(ts).Invitations(args[0]); strconv.Itoa(got) != args[1] {
					ts.Fatalf("%d invitations", got)
				}
			},
			"mode": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := os.Stat(ts.MkAbs(args[0]))
				ts.Check(err)
				if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
					ts.Fatalf("%s has mode %v", args[0], info.Mode())
				}
			},
		},
	})
}

// emulatorKey is the key of the script's emulator, a **brelliumtest.Emulator.
type emulatorKey struct{}

func emulatorOf(ts *testscript.TestScript) *brelliumtest.Emulator {
	return *ts.Value(emulatorKey{}).(**brelliumtest.Emulator)
}

func startEmulator(ts *testscript.TestScript, args []string) {
	options := []brelliumtest.Option{brelliumtest.WithSeed(1), brelliumtest.WithAuditDelay(0)}
	audits, seeded, remaining := 2, false, -1
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "audits", "remaining":
			n, err := strconv.Atoi(value)
			ts.Check(err)
			if name == "audits" {
				audits = n
			} else {
				remaining = n
			}
		case "latency":
			d, err := time.ParseDuration(value)
			ts.Check(err)
			options = append(options, brelliumtest.WithLatency(func(*rand.Rand) time.Duration { return d }))
		case "delay":
			d, err := time.ParseDuration(value)
			ts.Check(err)
			options = append(options, brelliumtest.WithAuditDelay(d))
		case "seed":
			seeded = true
		default:
			ts.Fatalf("unknown option %s", arg)
		}
	}
	e := brelliumtest.New(options...)
	e.SeedAudits(audits)
	ts.Check(e.Start())
	ts.Defer(e.Close)
	if seeded {
		ts.Check(seed(context.Background(), e))
	}
	if remaining >= 0 {
		e.SetRemaining(float64(remaining))
	}
	e.ClearRequests()
	*ts.Value(emulatorKey{}).(**brelliumtest.Emulator) = e
	ts.Setenv("BRELLIUM_BASE_URL", e.URL)
	ts.Setenv("BRELLIUM_CLIENT_ID", e.ClientID)
	ts.Setenv("BRELLIUM_CLIENT_SECRET", e.ClientSecret)
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d", code)
	}
}

func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	path, err := exec.LookPath(args[3])
	ts.Check(err)
	cmd := exec.Command(path, args[4:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"BRELLIUM_BASE_URL", "BRELLIUM_CLIENT_ID", "BRELLIUM_CLIENT_SECRET", "PATH"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	stdout, err := os.Create(ts.MkAbs("signal.stdout"))
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(ts.MkAbs("signal.stderr"))
	ts.Check(err)
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	reached := func() bool { return emulatorOf(ts).Count(args[1]) >= n }
	if args[1] == "output" {
		reached = func() bool { return strings.Count(ts.ReadFile("signal.stderr"), "\n") >= n }
	}
	for !reached() {
		select {
		case err := <-ended:
			ts.Fatalf("the command ended before the signal: %v", err)
		case <-tick.C:
		}
	}
	ts.Check(cmd.Process.Signal(signals[args[0]]))
	<-ended
	ts.Check(os.WriteFile(ts.MkAbs("signal.code"), []byte(strconv.Itoa(cmd.ProcessState.ExitCode())+"\n"), 0o600))
}

// audits counts the different audits in files.
func audits(ts *testscript.TestScript, args []string, repeats bool) {
	want := args[len(args)-1]
	ids := map[string]int{}
	for _, file := range args[:len(args)-1] {
		for i, line := range strings.Split(strings.TrimSpace(ts.ReadFile(file)), "\n") {
			id, _, _ := strings.Cut(line, ",")
			if strings.HasPrefix(line, "{") {
				var audit struct {
					ID string `json:"audit_id"`
				}
				ts.Check(json.Unmarshal([]byte(line), &audit))
				id = audit.ID
			} else if i == 0 {
				continue // the header of a CSV file
			}
			if ids[id]++; ids[id] > 1 && !repeats {
				ts.Fatalf("an audit is there twice (line %d of %s)", i+1, file)
			}
		}
	}
	if strconv.Itoa(len(ids)) != want {
		ts.Fatalf("%d audits", len(ids))
	}
}

func uploaded(ts *testscript.TestScript, _ bool, args []string) {
	documents := emulatorOf(ts).Documents()
	if strconv.Itoa(len(documents)) != args[0] {
		ts.Fatalf("%d documents", len(documents))
	}
	for _, d := range documents {
		if !d.Arrived || d.Puts != 1 {
			ts.Fatalf("%s was stored %d times", d.Filename, d.Puts)
		}
	}
}

func TestOpenAPIIsACopy(t *testing.T) {
	original, err := os.ReadFile(filepath.FromSlash("../../openapi/brellium-v2.yaml"))
	require.NoError(t, err)
	assert.Equal(t, string(original), string(openapi), "copy openapi/brellium-v2.yaml to cmd/brellium/openapi.yaml")
}

func TestStatusesAreThoseOfTheDescription(t *testing.T) {
	assert.Contains(t, string(openapi), "AuditStatus:")
	assert.Contains(t, string(openapi), "x-known-values: ["+strings.Join(auditStatuses, ", ")+"]")
}

// interruptAt is standard error that interrupts when a text is printed.
type interruptAt struct {
	strings.Builder
	text   string
	cancel context.CancelCauseFunc
}

func (w *interruptAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel(errSignal)
	}
	return w.Builder.Write(p)
}

func TestInterruptAtTheQuestionSaysThatNothingWasChanged(t *testing.T) {
	emulator := brelliumtest.New()
	require.NoError(t, emulator.Start())
	defer emulator.Close()
	t.Setenv("BRELLIUM_BASE_URL", emulator.URL)
	t.Setenv("BRELLIUM_CLIENT_ID", emulator.ClientID)
	t.Setenv("BRELLIUM_CLIENT_SECRET", emulator.ClientSecret)
	for _, args := range [][]string{{"audits", "flag", "x", "--set", "Late"}, {"users", "remove", "x"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stderr := &interruptAt{text: "[y/N]", cancel: cancel}
		in, keyboard := io.Pipe()
		defer keyboard.Close()
		a := &app{output: &output{in: in, out: io.Discard, err: stderr, inTTY: true, errTTY: true}}
		root := newRoot(a)
		root.SetArgs(args)
		assert.Equal(t, exitInterrupted, a.finish(ctx, root.ExecuteContext(ctx)))
		assert.Contains(t, stderr.String(), "? [y/N] \nInterrupted. Nothing was changed.\n")
	}
	assert.Zero(t, emulator.Count("*"))
}

func TestEveryCommandHasAScript(t *testing.T) {
	for _, name := range commandNames() {
		_, err := os.Stat(filepath.Join("testdata", "script", strings.ReplaceAll(name, " ", "_")+".txt"))
		assert.NoError(t, err, name)
	}
}

// commandNames returns the names of all commands that do something, such as
// "audits get".
func commandNames() (names []string) {
	root := newRoot(&app{output: newOutput()})
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue // cobra's own
		}
		if !cmd.HasSubCommands() {
			names = append(names, cmd.Name())
		}
		for _, sub := range cmd.Commands() {
			names = append(names, cmd.Name()+" "+sub.Name())
		}
	}
	slices.Sort(names)
	return names
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	emulator := brelliumtest.New()
	emulator.SeedAudits(200)
	require.NoError(t, emulator.Start())
	defer emulator.Close()
	// Nobody reads on from standard output, so that the command cannot end cleanly.
	cmd := exec.CommandContext(t.Context(), "brellium", "audits", "export", "--format", "jsonl")
	cmd.Env = []string{"BRELLIUM_BASE_URL=" + emulator.URL, "BRELLIUM_CLIENT_ID=" + emulator.ClientID, "BRELLIUM_CLIENT_SECRET=" + emulator.ClientSecret}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = stdout.Read(make([]byte, 1)) // a page is longer than the pipe holds
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	lines := bufio.NewScanner(stderr)
	require.True(t, lines.Scan())
	assert.Equal(t, "Stopping. Press Ctrl-C again to stop at once.", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	assert.False(t, lines.Scan())
	_ = cmd.Wait()
	assert.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
}
