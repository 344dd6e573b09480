// Turns the flights of vega-datasets (3,000,000 flights in the USA, January to June 2001) into
//   OUT_DIR/flights-train.csv   January to May
//   OUT_DIR/flights-eval.csv    June
// with the columns delay,hour,weekday,origin,destination,distance.
//
// Usage: node prepare_flights.mjs OUT_DIR
// Run from a folder whose node_modules has the packages of package.json; deploy/data/fetch does that.
//
// One row group of the source is in memory at a time. A file gets its name only when it is complete.
import {closeSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, writeSync} from 'node:fs';
import {join} from 'node:path';
import {asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects} from 'hyparquet';
import {compressors} from 'hyparquet-compressors';

const SOURCE = 'node_modules/vega-datasets/data/flights-3m.parquet';
const COLUMNS = ['date', 'delay', 'origin', 'destination', 'distance'];
const HEADER = 'delay,hour,weekday,origin,destination,distance\n';
const JUNE = 5;  // Date.getUTCMonth() counts from 0.
const EXPECTED_ROWS = {'flights-train.csv': 2497772, 'flights-eval.csv': 502228};
const WRITE_BYTES = 1 << 20;

class CsvFile {
  constructor(folder, name) {
    this.name = name;
    this.path = join(folder, name);
    this.temporary = `${this.path}.tmp-${process.pid}`;
    this.descriptor = openSync(this.temporary, 'w');
    this.pending = HEADER;
    this.rows = 0;
  }

  add(line) {
    this.pending += line;
    this.rows += 1;
    if (this.pending.length >= WRITE_BYTES) this.flush();
  }

  flush() {
    const bytes = Buffer.from(this.pending);
    for (let written = 0; written < bytes.length;) written += writeSync(this.descriptor, bytes, written);
    this.pending = '';
  }

  commit() {
    this.flush();
    fsyncSync(this.descriptor);
    closeSync(this.descriptor);
    renameSync(this.temporary, this.path);
    console.log(`${this.path}: ${this.rows} rows`);
  }

  discard() {
    rmSync(this.temporary, {force: true});
  }
}

function csvLine(row, number) {
  for (const column of COLUMNS) {
    if (row[column] === null || row[column] === undefined) throw new Error(`row ${number} has no ${column}`);
  }
  for (const column of ['origin', 'destination']) {
    if (!/^[A-Z0-9]+$/.test(row[column])) throw new Error(`row ${number}: ${column} is '${row[column]}'`);
  }
  const date = row.date;
  return `${row.delay},${date.getUTCHours()},${date.getUTCDay()},${row.origin},${row.destination},${row.distance}\n`;
}

async function convert(train, evaluation) {
  const file = await asyncBufferFromFile(SOURCE);
  const metadata = await parquetMetadataAsync(file);
  const total = Number(metadata.num_rows);
  let rowStart = 0;
  for (const group of metadata.row_groups) {
    const rowEnd = rowStart + Number(group.num_rows);
    const rows = await parquetReadObjects({file, metadata, compressors, columns: COLUMNS, rowStart, rowEnd});
    rows.forEach((row, i) => {
      const line = csvLine(row, rowStart + i);
      (row.date.getUTCMonth() < JUNE ? train : evaluation).add(line);
    });
    rowStart = rowEnd;
    console.log(`flights: ${rowStart} of ${total} rows`);
  }
}

async function main() {
  const folder = process.argv[2];
  if (!folder) throw new Error('usage: node prepare_flights.mjs OUT_DIR');
  mkdirSync(folder, {recursive: true});
  const files = Object.keys(EXPECTED_ROWS).map((name) => new CsvFile(folder, name));
  try {
    await convert(files[0], files[1]);
    for (const file of files) {
      const expected = EXPECTED_ROWS[file.name];
      if (file.rows !== expected) throw new Error(`${file.name} would have ${file.rows} rows, not ${expected}`);
    }
    for (const file of files) file.commit();
  } finally {
    for (const file of files) file.discard();
  }
}

main().catch((error) => {
  console.error(`prepare_flights: ${error.message}`);
  process.exitCode = 1;
});
