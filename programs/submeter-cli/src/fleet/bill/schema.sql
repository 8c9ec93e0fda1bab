-- The last reading of each run of a server. A run is one process; its epoch is a random number.
CREATE TABLE submeter_runs (
    epoch text PRIMARY KEY,
    member text NOT NULL,
    sequence bigint NOT NULL,
    -- In ms since 1970; NULL for a run that is known by its checkpoint alone.
    started_ms bigint,
    read_ms bigint NOT NULL,
    complete boolean NOT NULL,
    follows text[] NOT NULL
);

-- What each group of a run had counted when it was last read, with the groups below it: to be added
-- up by submeter_invoice.
CREATE TABLE submeter_totals (
    epoch text NOT NULL REFERENCES submeter_runs,
    id bigint NOT NULL,
    parent bigint,
    path text NOT NULL,
    metric text NOT NULL,
    unit text NOT NULL,
    total numeric(20) NOT NULL,
    PRIMARY KEY (epoch, id, metric)
);

-- What each group counted itself, over all runs: the lines add up to what all servers counted.
CREATE VIEW submeter_invoice AS
SELECT path, metric, unit, sum(total) AS total
FROM (
    SELECT path, metric, unit, total FROM submeter_totals
    UNION ALL
    SELECT above.path, below.metric, below.unit, -below.total
    FROM submeter_totals AS below
    JOIN submeter_totals AS above
        ON above.epoch = below.epoch AND above.id = below.parent AND above.metric = below.metric
) AS parts
GROUP BY path, metric, unit
HAVING sum(total) <> 0;

-- How far the lines reach: what a run counted after read_ms is not in them.
CREATE VIEW submeter_run_states AS
SELECT member, epoch, started_ms, read_ms,
    CASE
        WHEN complete THEN 'complete'
        WHEN EXISTS (
            SELECT FROM submeter_runs AS later
            WHERE later.epoch <> run.epoch
                AND (
                    (later.member = run.member AND later.started_ms > run.read_ms)
                    OR run.epoch = ANY (later.follows)
                )
        ) THEN 'unknown'
        ELSE 'open'
    END AS state
FROM submeter_runs AS run;
